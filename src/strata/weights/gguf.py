"""Open a GGUF model: one file, or all shards of a split one (`NAME-00001-of-00003.gguf`, keys `split.*`)."""

import os
import re
from pathlib import Path

from strata.weights.checkpoint import Checkpoint
from strata.weights.files import broken, list_directory, map_file, recognise
from strata.weights.gguf_header import Header, read_header

_SHARD_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5,9})-of-(?P<count>\d{5,9})(?P<suffix>\.gguf)", re.I | re.S)


def open_gguf(path: str | os.PathLike[str]) -> Checkpoint:
    """Open the GGUF model at `path`: a file, any shard of a split model, or a directory that holds one model.

    Raises WeightsError for anything that is not a whole, valid GGUF model of version 3, little-endian.
    """
    path = Path(path)
    first = _read(find_gguf(path) if os.path.isdir(path) else path)
    headers = _shards(first)
    return Checkpoint(
        path,
        "gguf",
        {header.path: header.data for header in headers},
        headers[0].metadata,
        (info for header in headers for info in header.tensors),
    )


def find_gguf(directory: Path) -> Path:
    """The GGUF file, or the first shard, of the one GGUF model in `directory`."""
    models: dict[str, Path] = {}
    for entry in list_directory(directory):
        if entry.suffix.lower() == ".gguf":
            match = _SHARD_NAME.fullmatch(entry.name)
            models.setdefault(f"{match['stem']} of {match['count']}" if match else entry.name, entry)
    if not models:
        raise broken(directory, "there is no .gguf file in this directory")
    if len(models) > 1:
        names = ", ".join(entry.name for entry in list(models.values())[:6]) + (", ..." if len(models) > 6 else "")
        raise broken(
            directory, f"there are {len(models)} GGUF models in this directory ({names}); give the path of one"
        )
    return next(iter(models.values()))


def _read(path: Path) -> Header:
    data = map_file(path)
    kind = recognise(path, data)
    if kind != "gguf":
        raise broken(path, f"this is a {kind} file, not GGUF")
    return read_header(path, data)


def _shards(opened: Header) -> list[Header]:
    """All headers of the model that `opened` is a file of, in order."""
    count = _split_number(opened, "split.count", 1)
    if count < 1:
        raise broken(opened.path, "key split.count is 0, but a model has at least one file")
    paths = _shard_paths(opened.path, count) if count > 1 else [opened.path]
    headers = [opened if path == opened.path else _read(path) for path in paths]
    for index, header in enumerate(headers):
        _check_place(header, index, count)
    found = sum(len(header.tensors) for header in headers)
    declared = _split_number(headers[0], "split.tensors.count", found)
    if declared != found:
        where = f"the {count} shards hold" if count > 1 else "the file holds"
        raise broken(headers[0].path, f"key split.tensors.count is {declared}, but {where} {found} tensors")
    return headers


def _shard_paths(path: Path, count: int) -> list[Path]:
    """The paths of all shards, told from the name of one; every one of them exists."""
    match = _SHARD_NAME.fullmatch(path.name)
    if match is None:
        raise broken(
            path,
            f"this is one of {count} shards, but its name does not end in -00001-of-{count:05d}.gguf, "
            "so the others cannot be found",
        )
    if int(match["count"]) != count:
        raise broken(path, f"key split.count is {count}, but the name says {int(match['count'])} shards")
    paths = []
    for number in range(1, count + 1):
        if number == int(match["number"]):
            paths.append(path)
            continue
        other = path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}{match['suffix']}")
        if not os.path.exists(other):
            raise broken(path, f"shard {number} of {count} is missing (expected {other.name} beside it)")
        paths.append(other)
    return paths


def _check_place(header: Header, index: int, count: int) -> None:
    """A shard has to say itself that it is number `index` (from 0) of `count`."""
    if count == 1:
        return
    own_count = _split_number(header, "split.count", 1)
    if own_count != count:
        raise broken(header.path, f"key split.count is {own_count}, but the other shards say {count}")
    number = _split_number(header, "split.no", None)
    if number != index:
        raise broken(
            header.path, f"key split.no is {number}, but this is shard {index + 1} of {count} ({index} is needed)"
        )


def _split_number(header: Header, key: str, default: int | None) -> int:
    value = header.metadata.get(key, default)
    if value is None:
        raise broken(header.path, f"key {key} is missing, but this is a shard of a split model")
    if not isinstance(value, int) or isinstance(value, bool):
        raise broken(header.path, f"key {key} is of type {type(value).__name__}, but a count is needed")
    if value < 0:
        raise broken(header.path, f"key {key} is {value}, but a count is needed")
    return value
