"""What a model's files hold, whatever their format: metadata, tensors, and the bytes of each tensor."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from strata.weights.files import Bytes, broken, shown

LARGEST_COUNT = 2**63 - 1
"""The largest element count, and the largest dimension, that a tensor may have."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a checkpoint and where its bytes lie.

    `shape` is in numpy order, outermost dimension first (GGUF's `ne` reversed). `format` is a name of
    `strata.formats.FORMATS` or the name of a plain dtype ("I32", "I64", "U8", ...; safetensors dtypes as the file
    spells them). `offset` is in bytes from the start of `file`.
    """

    name: str
    shape: tuple[int, ...]
    format: str
    nbytes: int
    file: Path
    offset: int

    @property
    def end(self) -> int:
        """The offset in the file just past the tensor's bytes."""
        return self.offset + self.nbytes


class Checkpoint:
    """An open model: one file, or all shards of a split one. A context manager.

    `path` is what was opened, `kind` is "gguf" or "safetensors", `files` are the shards in order. `metadata` holds
    GGUF's key-values (of the first shard; arrays of numbers as read-only numpy arrays, of strings as `list[str]`); for
    safetensors `"config"` (config.json beside the weights, if any), `"__metadata__"` (the headers' own, shards merged)
    and `"index"` (the index file's `metadata`, if any). `tensors` are in the order of the files and their bytes.
    """

    def __init__(
        self,
        path: Path,
        kind: str,
        data: Mapping[Path, Bytes],
        metadata: Mapping[str, object],
        tensors: Iterable[TensorInfo],
    ) -> None:
        self.path = path
        self.kind = kind
        self.files = tuple(data)
        self.metadata = MappingProxyType(metadata)
        self.tensors = MappingProxyType(_by_name(tensors))
        self._data = dict(data)

    def span(self, name: str) -> Bytes:
        """The tensor's bytes: a read-only uint8 view [nbytes] of the memory map, no copy.

        Raises WeightsError for a name that the checkpoint does not hold, and after `close`.
        """
        info = self.require(name)
        if not self._data:
            raise broken(self.path, f"the checkpoint is closed, tensor {shown(name)} cannot be read")
        return self._data[info.file][info.offset : info.end]

    def require(
        self, name: str, shape: Sequence[int] | None = None, formats: Collection[str] | None = None
    ) -> TensorInfo:
        """The tensor `name`, which must have this `shape` and one of these `formats` where they are given.

        Raises WeightsError naming the file, the tensor, what was found and what is needed.
        """
        info = self.tensors.get(name)
        if info is None:
            needed = "" if shape is None else f" of shape {tuple(shape)}"
            raise broken(self.path, f"tensor {shown(name)}{needed} is missing (there are {len(self.tensors)} others)")
        if shape is not None and info.shape != tuple(shape):
            raise broken(info.file, f"tensor {shown(name)} has shape {info.shape}, but {tuple(shape)} is needed")
        if isinstance(formats, str):
            formats = (formats,)
        if formats is not None and info.format not in formats:
            needed = " or ".join(sorted(formats))
            raise broken(info.file, f"tensor {shown(name)} is stored as {info.format}, but {needed} is needed")
        return info

    def close(self) -> None:
        """Let the files go; closing twice is harmless.

        Spans that are still alive stay valid: each file's map ends with its last span (on Windows the file cannot be
        removed before that).
        """
        self._data = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Checkpoint {self.path} ({self.kind}, {len(self.files)} files, {len(self.tensors)} tensors)>"


def _by_name(tensors: Iterable[TensorInfo]) -> dict[str, TensorInfo]:
    """`tensors` by name; a name that occurs twice is an error that tells where."""
    result: dict[str, TensorInfo] = {}
    for info in tensors:
        other = result.setdefault(info.name, info)
        if other is not info:
            where = "twice" if other.file == info.file else f"also in {other.file.name}"
            raise broken(
                info.file, f"tensor {shown(info.name)} is there {where} (at bytes {other.offset} and {info.offset})"
            )
    return result


def element_count(path: Path, name: str, shape: Sequence[int]) -> int:
    """The product of `shape`; raises WeightsError where it, zeros left out, is beyond `LARGEST_COUNT`.

    Zeros are left out because such a shape overflows as soon as anybody multiplies it in another order.
    """
    count = 1
    for size in shape:
        count *= size or 1
        if count > LARGEST_COUNT:
            raise broken(
                path, f"tensor {shown(name)} has shape {shown(tuple(shape))}, more than {LARGEST_COUNT} elements"
            )
    return 0 if 0 in shape else count


def in_byte_order(path: Path, size: int, tensors: Iterable[TensorInfo]) -> list[TensorInfo]:
    """The tensors of one file of `size` bytes, sorted by offset.

    Raises WeightsError for a tensor whose bytes run past the end of the file, and for two whose bytes overlap.
    """
    ordered = sorted(tensors, key=lambda info: info.offset)
    before: TensorInfo | None = None
    for info in ordered:
        if not info.nbytes:
            continue
        if info.end > size:
            raise broken(
                path,
                f"tensor {shown(info.name)} needs bytes {info.offset}..{info.end} but the file ends at {size}: "
                "the download is incomplete",
            )
        if before is not None and info.offset < before.end:
            raise broken(
                path,
                f"tensors {shown(before.name)} and {shown(info.name)} overlap "
                f"(bytes {before.offset}..{before.end} and {info.offset}..{info.end})",
            )
        before = info
    return ordered
