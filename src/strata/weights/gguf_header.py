"""The header of one GGUF file (version 3, little-endian): key-values and tensor table.

Written from the format's description (ggml, docs/gguf.md). Every size that the file declares is compared with the bytes
that are left before it is believed, so time and memory are bounded by the size of the file.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.errors import FormatError
from strata.formats import by_ggml_type
from strata.weights.checkpoint import LARGEST_COUNT, TensorInfo, element_count, in_byte_order
from strata.weights.files import Bytes, broken, shown

VERSION = 3
DEFAULT_ALIGNMENT = 32
LARGEST_DEPTH = 3
"""How deep arrays may nest; converters write flat ones."""
LARGEST_RANK = 4

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

_UINT8, _UINT32, _BOOL, _STRING, _ARRAY = 0, 4, 7, 8, 9
_NUMBERS: dict[int, np.dtype[Any]] = {
    0: np.dtype("<u1"),
    1: np.dtype("<i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    6: np.dtype("<f4"),
    7: np.dtype("<u1"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}
_SMALLEST_ITEM: dict[int, int] = {number: dtype.itemsize for number, dtype in _NUMBERS.items()} | {
    _STRING: 8,
    _ARRAY: 12,
}
_SMALLEST_KEY_VALUE = 8 + 4 + 1
_SMALLEST_TENSOR = 8 + 4 + 4 + 8

# ggml types that are plain numbers: no codebook, no blocks, so they are no row of `strata.formats`.
_PLAIN_TYPES = {24: ("I8", 1), 25: ("I16", 2), 26: ("I32", 4), 27: ("I64", 8), 28: ("F64", 8)}


@dataclass(frozen=True, slots=True)
class Header:
    """One parsed GGUF file: its mapped bytes, key-values, and tensors in the order of their bytes."""

    path: Path
    data: Bytes
    metadata: dict[str, object]
    tensors: list[TensorInfo]


class _Cursor:
    """Reads a header front to back."""

    def __init__(self, path: Path, data: Bytes) -> None:
        self.path = path
        self.data = data
        self.view = data.data
        self.position = 0
        self.end = data.size

    def take(self, count: int, what: str) -> int:
        """Step over `count` bytes; their position."""
        start = self.position
        if count > self.end - start:
            raise broken(
                self.path,
                f"{what} needs bytes {start}..{start + count} but the file ends at {self.end}: "
                "the download is incomplete",
            )
        self.position = start + count
        return start

    def u32(self, what: str) -> int:
        value: int = _U32.unpack_from(self.view, self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        value: int = _U64.unpack_from(self.view, self.take(8, what))[0]
        return value

    def count(self, smallest: int, what: str, things: str) -> int:
        """A declared number of things of at least `smallest` bytes each."""
        count = self.u64(what)
        left = self.end - self.position
        if count > left // smallest:
            raise broken(
                self.path,
                f"{what} declares {count} {things} of at least {smallest} bytes, but only {left} bytes are left",
            )
        return count

    def text(self, what: str) -> str:
        count = self.u64(f"the length of {what}")
        start = self.take(count, what)
        return self._decode(start, start + count, what)

    def texts(self, count: int, what: str) -> list[str]:
        """`count` strings: a vocabulary has 250,000, so this is the one loop that is written for speed."""
        result: list[str] = []
        view, position, end, unpack = self.view, self.position, self.end, _U64.unpack_from
        for index in range(count):
            start = position + 8
            if start > end or (stop := start + unpack(view, position)[0]) > end:
                self.position = position
                self.take(end + 1 - position if start > end else stop - position, f"{what} (string {index} of {count})")
            position = stop
            try:
                result.append(str(view[start:stop], "utf-8"))
            except UnicodeDecodeError:
                self._decode(start, stop, f"{what} (string {index} of {count})")
        self.position = position
        return result

    def _decode(self, start: int, stop: int, what: str) -> str:
        try:
            return str(self.view[start:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise broken(
                self.path, f"{what} is not UTF-8 (byte {error.start} of the {stop - start} at {start})"
            ) from None

    def value(self, number: int, what: str, depth: int = 0) -> object:
        """A value of GGUF's value type `number`."""
        if number == _STRING:
            return self.text(what)
        if number == _ARRAY:
            return self._array(what, depth + 1)
        array = self._numbers(number, 1, what)
        return array[0].item()

    def _array(self, what: str, depth: int) -> object:
        if depth > LARGEST_DEPTH:
            raise broken(self.path, f"{what} nests arrays more than {LARGEST_DEPTH} deep")
        number = self.u32(f"the type of {what}")
        count = self.count(self._smallest(number, what), what, "values")
        if number == _STRING:
            return self.texts(count, what)
        if number == _ARRAY:
            return [self._array(what, depth + 1) for _ in range(count)]
        return self._numbers(number, count, what)

    def _smallest(self, number: int, what: str) -> int:
        if number not in _SMALLEST_ITEM:
            raise broken(self.path, f"{what} has value type {number}, but GGUF {VERSION} knows only 0 to 12")
        return _SMALLEST_ITEM[number]

    def _numbers(self, number: int, count: int, what: str) -> NDArray[Any]:
        """`count` numbers as an array of their own: metadata must not keep the file mapped."""
        size = self._smallest(number, what) * count
        start = self.take(size, what)
        raw = self.data[start : start + size]
        if number == _BOOL:
            if size and int(raw.max()) > 1:
                raise broken(self.path, f"{what} is a bool of value {int(raw.max())}, neither 0 nor 1")
            array: NDArray[Any] = raw.astype(np.bool_)
        else:
            array = raw.copy().view(_NUMBERS[number])
        array.flags.writeable = False
        return array


def read_header(path: Path, data: Bytes) -> Header:
    """Parse the header of the GGUF file `path`, whose mapped bytes are `data` (they begin with the magic number).

    Raises WeightsError, naming the file, the key or tensor and the numbers, for whatever is wrong with it.
    """
    cursor = _Cursor(path, data)
    cursor.take(4, "the magic number")
    _check_version(path, cursor.u32("the version"))
    tensor_count = cursor.count(_SMALLEST_TENSOR, "the header", "tensors")
    key_count = cursor.count(_SMALLEST_KEY_VALUE, "the header", "key-values")
    metadata: dict[str, object] = {}
    types: dict[str, int] = {}
    for index in range(key_count):
        key = cursor.text(f"key {index + 1} of {key_count}")
        what = f"key {shown(key)}"
        if key in metadata:
            raise broken(path, f"{what} is there twice")
        types[key] = cursor.u32(f"the type of {what}")
        metadata[key] = cursor.value(types[key], what)
    alignment = _alignment(path, metadata, types)
    rows = [_tensor_row(cursor, index, tensor_count) for index in range(tensor_count)]
    start = -(-cursor.position // alignment) * alignment
    tensors = [_tensor(path, row, start, alignment) for row in rows]
    return Header(path, data, metadata, in_byte_order(path, data.size, tensors))


def _check_version(path: Path, version: int) -> None:
    if version == VERSION:
        return
    if version & 0xFFFF == 0 and version:
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        raise broken(path, f"this is a big-endian GGUF file (version {swapped}); convert it to little-endian")
    raise broken(path, f"this is GGUF version {version}, but version {VERSION} is needed; convert the model again")


def _alignment(path: Path, metadata: dict[str, object], types: dict[str, int]) -> int:
    key = "general.alignment"
    value = metadata.get(key, DEFAULT_ALIGNMENT)
    if types.get(key, _UINT32) != _UINT32 or not isinstance(value, int):
        raise broken(path, f"key {key} has value type {types[key]}, but {_UINT32} (uint32) is needed")
    if value < 1 or value & (value - 1):
        raise broken(path, f"key {key} is {value}, but a power of two is needed")
    return value


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the tensor table as it stands in the file; `offset` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    ggml_type: int
    offset: int


def _tensor_row(cursor: _Cursor, index: int, count: int) -> _Row:
    name = cursor.text(f"the name of tensor {index + 1} of {count}")
    what = f"tensor {shown(name)}"
    rank = cursor.u32(what)
    if rank > LARGEST_RANK:
        raise broken(cursor.path, f"{what} has {rank} dimensions, but GGUF allows {LARGEST_RANK}")
    layout = f"<{rank}QIQ"
    *sizes, ggml_type, offset = struct.unpack_from(layout, cursor.view, cursor.take(struct.calcsize(layout), what))
    return _Row(name, tuple(reversed(sizes)), ggml_type, offset)


def _tensor(path: Path, row: _Row, start: int, alignment: int) -> TensorInfo:
    """The row with its format looked up and its place in the file worked out."""
    what = f"tensor {shown(row.name)}"
    if row.offset % alignment:
        raise broken(
            path, f"{what} lies at offset {row.offset} of the data, not a multiple of the alignment {alignment}"
        )
    if row.offset > LARGEST_COUNT:
        raise broken(path, f"{what} lies at offset {row.offset} of the data, more than {LARGEST_COUNT}")
    if row.ggml_type in _PLAIN_TYPES:
        name, nbytes = _PLAIN_TYPES[row.ggml_type]
        block = 1
    else:
        try:
            known = by_ggml_type(row.ggml_type)
        except FormatError:
            raise broken(path, f"{what} has ggml type {row.ggml_type}, which is not supported") from None
        name, block, nbytes = known.name, known.block, known.block_bytes
    count = element_count(path, row.name, row.shape)
    width = row.shape[-1] if row.shape else 1
    if width % block:
        raise broken(path, f"{what} has rows of {width} values, but {name} stores blocks of {block}")
    return TensorInfo(row.name, row.shape, name, count // block * nbytes, path, start + row.offset)
