"""One conversation in a file: parked ones and session files (SAVE, RESTORE).

A header of 64 bytes, sections at multiples of 64, and an index in JSON at the end (little endian):

    header   magic, version, two spare words, offset, length and CRC-32 of the index, CRC-32 of the header before it
    section  the bytes of one array in C order
    index    model, kv, made (what computed it), states: [{length, sections: [{name, dtype, shape, offset, crcs}]}]

The first state is the longest and has all sections; of the others, checkpoints on its path, only those that it cannot
give. A file is written under another name, synced and renamed, so that a name always stands for a whole file; a CRC-32
for every 4 MiB of a section finds what a disk spoilt, and lets several threads read. Rows of caches go from where they
lie to the file and back, in pieces: no section is in memory twice.
"""

import contextlib
import errno
import json
import math
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from strata.cpu.checksum import crc32
from strata.cpu.lane import need_mtp
from strata.cpu.pieces import Pieces, Section
from strata.errors import StrataError, UsageError
from strata.memory.state import State
from strata.memory.tokens import Tokens
from strata.units import bytes_text

S = TypeVar("S", bound=State)
SUFFIX, TEMPORARY = ".conversation", ".unfinished"
VERSION = 1
_MAGIC = b"STRATA\r\n"
_HEADER = struct.Struct("<8sIIIIQQI16xI")
_ALIGN = 64
_BLOCK = 1 << 22  # bytes of one checksum, written or read at once: they stay in the cache meanwhile
_READERS = 4
_PIECES = 1024  # pieces of memory that one call may read or write (IOV_MAX)
_LARGEST_INDEX = 1 << 26
_SEEKING = threading.Lock()
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class ConversationFileError(StrataError):
    """A file that cannot be written or used. `kind`: invalid (its content), storage (no room) or io."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Origin:
    """What a state belongs to: the model's fingerprint, the caches' type, and what computed it (told, not required).

    `drafts`: the engine drafts, so it needs states that the MTP block has read; an engine that does not takes both.
    """

    model: str
    kv: str
    made: str
    drafts: bool = False


@dataclass(frozen=True, slots=True)
class Saved:
    """A file that fits this engine: its conversation's tokens, the lengths of its states (longest first), its size."""

    path: Path
    tokens: Tokens
    lengths: tuple[int, ...]
    size: int
    made: str


def write(path: Path, states: Sequence[State], origin: Origin) -> int:
    """Write one conversation: its longest state, then checkpoints on its path. Bytes written.

    Raises ConversationFileError (storage, io); what stood under `path` before then still does.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    try:
        with open(scratch, "wb", buffering=0) as file:
            size = _write(file, states, origin)
            os.fsync(file.fileno())
        os.replace(scratch, path)
        _sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise _os_error("be written", path, error) from error
    return size


def look(path: Path, origin: Origin) -> Saved:
    """What a file holds, without its arrays; ConversationFileError (invalid, io) where it does not fit."""
    with _opened(path) as file, _fitting(path):
        index, size = _index(file, path, origin)
        states = index["states"]
        tokens = _Sections(file, path, states[0]["sections"], size, map)["tokens"]
        lengths = tuple(int(state["length"]) for state in states)
        if tokens.dtype != np.int64 or tokens.shape != (lengths[0],) or any(not 0 < n <= lengths[0] for n in lengths):
            raise _damaged(path, "its lengths do not fit its tokens")
        return Saved(path, tokens, lengths, size, str(index["made"]))


def read(path: Path, origin: Origin, new: Callable[[], S]) -> list[S]:
    """The states of a file, longest first, bit for bit; ConversationFileError (invalid, io).

    `new` makes the empty state that becomes the longest; the others share its cache rows.
    """
    with _opened(path) as file, _fitting(path), ThreadPoolExecutor(_READERS, "restoring") as readers:
        index, size = _index(file, path, origin)
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
        first, *rest = index["states"]
        longest = new()
        longest.restore(_Sections(file, path, first["sections"], size, readers.map))
        states = [longest]
        for state in rest:
            sections = _Sections(file, path, state["sections"], size, readers.map)
            states.append(longest.shorter(int(state["length"]), sections))
        return states


def unfinished(directory: Path) -> list[Path]:
    """What writers that were killed left behind; a writer that still lives keeps its own."""
    return [path for path in directory.glob(f".*{TEMPORARY}") if not _alive(path)]


def _write(file: FileIO, states: Sequence[State], origin: Origin) -> int:
    at = _write_block(file, [memoryview(bytes(_ALIGN))])
    listed = []
    for number, state in enumerate(states):
        sections = []
        for name, section in state.sections(rows=number == 0):
            at += _write_block(file, [memoryview(bytes(-at % _ALIGN))])
            offset, crcs = at, []
            for block in _blocks(_parts(section)):
                crcs.append(crc32(block))
                at += _write_block(file, block)
            entry = {"name": name, "dtype": section.dtype.str, "shape": section.shape, "offset": offset, "crcs": crcs}
            sections.append(entry)
        listed.append({"length": state.length, "sections": sections})
    index = {"model": origin.model, "kv": origin.kv, "made": origin.made, "states": listed}
    text = json.dumps(index, separators=(",", ":")).encode()
    head = _HEADER.pack(_MAGIC, VERSION, 0, 0, 0, at, len(text), zlib.crc32(text), 0)[:-4]
    at += _write_block(file, [memoryview(text)])
    file.seek(0)
    _write_block(file, [memoryview(head + struct.pack("<I", zlib.crc32(head)))])
    return at


def _parts(section: Section) -> Sequence[npt.NDArray[np.uint8]]:
    """The bytes of a section, in C order."""
    if isinstance(section, Pieces):
        return section.parts
    return [np.ascontiguousarray(section).reshape(-1).view(np.uint8)]


def _blocks(parts: Sequence[npt.NDArray[np.uint8]]) -> list[list[memoryview]]:
    """The parts cut into blocks of 4 MiB, the last one shorter; a block is a list of pieces."""
    blocks: list[list[memoryview]] = []
    room = 0
    for part in parts:
        view = part.data
        while len(view):
            if not room:
                blocks.append([])
                room = _BLOCK
            blocks[-1].append(view[:room])
            room, view = room - len(blocks[-1][-1]), view[room:]
    return blocks


def _write_block(file: FileIO, block: Sequence[memoryview]) -> int:
    """Write all of a block at the file's position; its bytes."""
    left = [piece for piece in block if len(piece)]
    size = sum(map(len, left))
    while left:
        done = os.writev(file.fileno(), left[:_PIECES]) if hasattr(os, "writev") else file.write(left[0])
        left = _after(left, done)
    return size


def _after(pieces: list[memoryview], done: int) -> list[memoryview]:
    """What is left of pieces after the first `done` bytes."""
    at = 0
    while at < len(pieces) and done >= len(pieces[at]):
        done -= len(pieces[at])
        at += 1
    return [pieces[at][done:], *pieces[at + 1 :]] if done else pieces[at:]


def _index(file: FileIO, path: Path, origin: Origin) -> tuple[dict[str, Any], int]:
    """A file's index, and its size. A file cut short, spoilt or of another model is refused in one sentence."""
    size = os.fstat(file.fileno()).st_size
    head = file.read(_ALIGN)
    if len(head) < _ALIGN or not head.startswith(_MAGIC):
        raise _damaged(path, "it is no conversation file, or was cut short")
    _, version, _, _, _, offset, length, crc, head_crc = _HEADER.unpack(head)
    if zlib.crc32(head[:-4]) != head_crc:
        raise _damaged(path, "the checksum of its header is wrong")
    if version != VERSION:
        raise ConversationFileError("invalid", f"{path} has version {version} of the format; {VERSION} is read here.")
    if offset + length != size or length > _LARGEST_INDEX:
        raise _damaged(path, f"it has {size} bytes where its header says {offset + length}")
    file.seek(offset)
    text = file.read(length)
    if zlib.crc32(text) != crc:
        raise _damaged(path, "the checksum of its index is wrong")
    index: dict[str, Any] = json.loads(text)
    for name, what, mine in (("model", "model", origin.model), ("kv", "cache type (--kv)", origin.kv)):
        if index[name] != mine:
            raise ConversationFileError(
                "invalid", f"{path} was saved with another {what}, {index[name]}; this engine runs {mine}."
            )
    if origin.drafts:
        try:
            need_mtp({entry["name"]: entry for entry in index["states"][0]["sections"]})
        except UsageError as error:
            raise _unusable(path, error) from None
    return index, size


class _Sections(Mapping[str, npt.NDArray[Any]]):
    """The arrays of one state, read and checked when asked for; one buffer for all with the same last name part.

    `each` is `map`, or that of a pool of threads.
    """

    def __init__(
        self,
        file: FileIO,
        path: Path,
        entries: Sequence[Mapping[str, Any]],
        size: int,
        each: Callable[..., Iterator[bool]],
    ) -> None:
        self._file, self._path, self._size, self._each = file, path, size, each
        self._entries = {entry["name"]: entry for entry in entries}
        self._buffers: dict[str, npt.NDArray[np.uint8]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        shape, dtype = self._kind(name)
        count = math.prod(shape) * dtype.itemsize
        if self._entries[name]["offset"] + count > self._size:
            raise _damaged(self._path, f"section {name} does not lie in the file")
        part = name.rpartition(".")[2]
        if part not in self._buffers or len(self._buffers[part]) < count:
            self._buffers[part] = np.empty(count, np.uint8)
        raw = self._buffers[part][:count]
        self.fill(name, Pieces(shape, dtype, [raw]))
        array: npt.NDArray[Any] = raw.view(dtype).reshape(shape)
        return array

    def fill(self, name: str, target: Pieces) -> None:
        """Read and check a section into the pieces; ValueError where they are of another shape or type."""
        target.need(*self._kind(name))
        entry = self._entries[name]
        blocks, crcs = _blocks(target.parts), list(entry["crcs"])
        offsets = range(entry["offset"], entry["offset"] + target.nbytes, _BLOCK)
        if len(crcs) != len(blocks) or not all(self._each(self._good, offsets, blocks, crcs)):
            raise _damaged(self._path, f"the checksum of section {name} ({bytes_text(target.nbytes)}) is wrong")

    def _kind(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        entry = self._entries[name]
        dtype, shape = np.dtype(entry["dtype"]), tuple(int(n) for n in entry["shape"])
        if dtype.kind not in "iuf" or min(shape, default=0) < 0:
            raise _damaged(self._path, f"section {name} does not lie in the file")
        return shape, dtype

    def _good(self, offset: int, block: list[memoryview], crc: int) -> bool:
        """Read one block; whether it is what was written."""
        _read_at(self._file, offset, block, self._path)
        return crc32(block) == crc


def _read_at(file: FileIO, offset: int, block: list[memoryview], path: Path) -> None:
    """Fill a block from a place in the file; the file's own position does not matter where the system can do that."""
    left = block
    while left:
        if hasattr(os, "preadv"):
            done = os.preadv(file.fileno(), left[:_PIECES], offset)
        else:
            with _SEEKING:
                file.seek(offset)
                done = file.readinto(left[0]) or 0
        if not done:
            raise _damaged(path, "it was cut short while it was read")
        offset, left = offset + done, _after(left, done)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[FileIO]:
    try:
        with open(path, "rb", buffering=0) as file:
            yield file
    except OSError as error:
        raise _os_error("be read", path, error) from error


@contextlib.contextmanager
def _fitting(path: Path) -> Iterator[None]:
    """A file that is whole but does not fit: of an engine that did not draft, of another program, or by a mistake."""
    try:
        yield
    except UsageError as error:
        raise _unusable(path, error) from error
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"its sections do not fit the model ({error})") from error


def _damaged(path: Path, why: str) -> ConversationFileError:
    return ConversationFileError("invalid", f"{path} is damaged: {why}.")


def _unusable(path: Path, error: UsageError) -> ConversationFileError:
    return ConversationFileError("invalid", f"{path} cannot be used: {error}")


def _os_error(what: str, path: Path, error: OSError) -> ConversationFileError:
    kind = "storage" if error.errno in _FULL else "io"
    return ConversationFileError(kind, f"{path} cannot {what}: {error.strerror or error}.")


def _sync_directory(directory: Path) -> None:
    if os.name == "nt":  # a directory cannot be opened there; the rename is journalled
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _alive(path: Path) -> bool:
    """Whether the process that writes a temporary file, named in it, still runs."""
    number = path.name.removesuffix(TEMPORARY).rpartition(".")[2]
    if not number.isdecimal():
        return False
    if int(number) == os.getpid():
        return True
    try:
        os.kill(int(number), 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
