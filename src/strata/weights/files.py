"""A model file: mapped read-only, recognised by its first bytes; and the words for what is wrong with it."""

import json
import mmap
import os
import reprlib
import stat
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from strata.errors import WeightsError

Bytes = NDArray[np.uint8]

LARGEST_JSON = 100_000_000
"""Bytes of the largest JSON text that is read: the limit that the safetensors format sets for its header."""

_SHOWN_CHARACTERS = 120
# Bounds depth and length: JSON that nests as deep as its parser goes would be too deep for `str`.
_REPR = reprlib.Repr()
_REPR.maxtuple = _REPR.maxlist = 8
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_OTHER_FILES = (
    (b"PK\x03\x04", "a PyTorch or zip archive"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"lmgg", "an old GGML file, from before GGUF"),
    (b"fmgg", "an old GGML file, from before GGUF"),
    (b"tjgg", "an old GGML file, from before GGUF"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
)


def shown(value: object) -> str:
    """`value` as one line of printable text: control characters and lone surrogates escaped, long text cut."""
    text = value if isinstance(value, str) else _REPR.repr(value)
    if len(text) > _SHOWN_CHARACTERS:
        text = text[:_SHOWN_CHARACTERS] + "..."
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def shown_path(path: Path) -> str:
    """`path` as printable text, never cut: a path is only useful whole."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(path))


def broken(path: Path, text: str) -> WeightsError:
    """The error that says `text` about the file at `path`."""
    return WeightsError(f"{shown_path(path)}: {text}")


def map_file(path: Path) -> Bytes:
    """The whole file as a read-only uint8 array over a memory map; nothing is read before it is touched.

    The map lives as long as the array or any view of it. Raises WeightsError for a path that is not a readable,
    non-empty regular file (a pipe or a device is refused unopened: opening one can wait for ever).
    """
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise broken(path, "this is a directory, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise broken(path, "this is a pipe, socket or device, not a file")
        if status.st_size == 0:
            raise broken(path, "the file is empty (0 bytes)")
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise broken(path, "no such file or directory") from None
    except (OSError, ValueError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise broken(path, f"the file cannot be read ({reason})") from None
    return np.frombuffer(mapped, np.uint8)


def recognise(path: Path, data: Bytes) -> str:
    """What the file is, by its bytes: "gguf", "safetensors" or "json". Raises WeightsError for anything else."""
    head = bytes(data[:512])
    if head.startswith(b"GGUF"):
        return "gguf"
    looks_json = head.lstrip()[:1] == b"{"
    # A safetensors file begins with a 64-bit length, whose first byte may be a brace, too: but then it has zero bytes.
    if head[8:9] == b"{" and (not looks_json or b"\0" in head[:8]):
        return "safetensors"
    if looks_json:
        return "json"
    _refuse(path, head, data.size)


def _refuse(path: Path, head: bytes, size: int) -> NoReturn:
    """Raise the error for a file that is neither GGUF nor safetensors, saying what it is where that is known."""
    if head.startswith(_LFS_POINTER):
        words = head.split()
        told = words[words.index(b"size") + 1] if b"size" in words[:-1] else b""
        full = f" of {told.decode()} bytes" if told.isdigit() else ""
        raise broken(path, f"this is a Git LFS pointer, not the model{full}; fetch the model with `git lfs pull`")
    if head.startswith(b"FUGG"):
        raise broken(path, "the magic number is byte-swapped (FUGG), so this is no little-endian GGUF file")
    for magic, what in _OTHER_FILES:
        if head.startswith(magic):
            raise broken(path, f"this is {what}; a GGUF or safetensors file is needed")
    if not any(head):
        raise broken(path, f"the first {len(head)} of {size} bytes are zeros: the download is incomplete")
    raise broken(
        path, f"this is neither a GGUF nor a safetensors file (its {size} bytes begin with {head[:8].hex(' ')})"
    )


def parse_json(path: Path, text: bytes, what: str) -> dict[str, object]:
    """The JSON object in `text`, which is the `what` of the file at `path`; a repeated key is an error."""
    if len(text) > LARGEST_JSON:
        raise broken(path, f"{what} has {len(text)} bytes, more than the {LARGEST_JSON} that are accepted")
    try:
        value = json.loads(text.decode(), object_pairs_hook=_without_repeats)
    except _RepeatedKeyError as error:
        raise broken(path, f"{what} has the key {error} twice") from None
    except UnicodeDecodeError as error:
        raise broken(path, f"{what} is not UTF-8 (byte {error.start} of {len(text)})") from None
    except RecursionError:
        raise broken(path, f"{what} is not valid (its {len(text)} bytes of JSON nest too deeply)") from None
    except ValueError as error:
        raise broken(path, f"{what} is not valid JSON ({shown(str(error))})") from None
    if not isinstance(value, dict):
        raise broken(path, f"{what} is no JSON object but of type {type(value).__name__}")
    return value


class _RepeatedKeyError(ValueError):
    """A key that a JSON object holds twice; its text is the key, fit to be shown."""


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object's pairs as a dict."""
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedKeyError(shown(key))
            seen.add(key)
    return result


def read_json(path: Path) -> dict[str, object]:
    """The JSON object that the whole file at `path` is."""
    data = map_file(path)
    if bytes(data[: len(_LFS_POINTER)]) == _LFS_POINTER:
        _refuse(path, bytes(data[:512]), data.size)
    if data.size > LARGEST_JSON:
        raise broken(path, f"the file has {data.size} bytes, more than the {LARGEST_JSON} that are accepted for JSON")
    return parse_json(path, data.tobytes(), "the file")


def list_directory(path: Path) -> list[Path]:
    """The directory's entries, sorted by name, sub-directories left out."""
    try:
        entries = sorted(path.iterdir(), key=lambda entry: entry.name)
    except OSError as error:
        raise broken(path, f"the directory cannot be read ({error.strerror})") from None
    return [entry for entry in entries if not os.path.isdir(entry)]
