"""Open a safetensors model: one file, or the shards that a `*.safetensors.index.json` names.

The format (its README, "Format"): the header's length (uint64), the header (JSON: name -> dtype, shape, byte range in
the data), the data, gapless to the end of the file.
"""

import os
import re
import struct
from pathlib import Path

from strata.weights.checkpoint import LARGEST_COUNT, Checkpoint, TensorInfo, element_count, in_byte_order
from strata.weights.files import (
    LARGEST_JSON,
    Bytes,
    broken,
    list_directory,
    map_file,
    parse_json,
    read_json,
    recognise,
    shown,
)

_BITS = {
    "F4": 4,
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("F16", "BF16", "I16", "U16"), 16),
    **dict.fromkeys(("F32", "I32", "U32"), 32),
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 64),
}
LARGEST_RANK = 64
"""numpy's own limit."""

_INDEX_SUFFIX = ".safetensors.index.json"
_SHARD_NAME = re.compile(r".*-\d{5,9}-of-\d{5,9}\.safetensors", re.I | re.S)


def open_safetensors(path: str | os.PathLike[str]) -> Checkpoint:
    """Open the safetensors model at `path`: a file, an index, a shard with its index beside it, or a directory.

    Raises WeightsError for anything that is not a whole, valid safetensors model.
    """
    path = Path(path)
    opened = find_safetensors(path) if os.path.isdir(path) else path
    data = map_file(opened)
    kind = recognise(opened, data)
    if kind == "gguf":
        raise broken(opened, "this is a GGUF file, not safetensors")
    index = opened if kind == "json" else _index_beside(opened)
    metadata = _config_beside(opened)
    headers: dict[str, object] = {}
    if index is None:
        tensors = _read_header(opened, data, headers)
        spans = {opened: data}
    else:
        tensors, spans = _read_shards(index, metadata, headers)
    if headers:
        metadata["__metadata__"] = headers
    return Checkpoint(path, "safetensors", spans, metadata, tensors)


def find_safetensors(directory: Path) -> Path:
    """The index, or else the one safetensors file, of the model in `directory`."""
    entries = list_directory(directory)
    for suffix in (_INDEX_SUFFIX, ".safetensors"):
        found = [entry for entry in entries if entry.name.lower().endswith(suffix)]
        usual = [entry for entry in found if entry.name == f"model{suffix}"]
        if usual or len(found) == 1:
            return (usual or found)[0]
        if found:
            names = ", ".join(entry.name for entry in found[:6]) + (", ..." if len(found) > 6 else "")
            missing = f" and no model{_INDEX_SUFFIX}" if suffix == ".safetensors" else ""
            raise broken(directory, f"there are {len(found)} files *{suffix}{missing} ({names}); give the path of one")
    raise broken(directory, "there is no .safetensors file in this directory")


def _index_beside(path: Path) -> Path | None:
    """The index that the shard `path` belongs to, if it is named like a shard and an index lists it."""
    if not _SHARD_NAME.fullmatch(path.name):
        return None
    for entry in list_directory(path.parent):
        if entry.name.lower().endswith(_INDEX_SUFFIX) and path.name in _weight_map(entry, read_json(entry)).values():
            return entry
    return None


def _config_beside(path: Path) -> dict[str, object]:
    config = path.with_name("config.json")
    return {"config": read_json(config)} if config != path and os.path.exists(config) else {}


def _weight_map(path: Path, index: dict[str, object]) -> dict[str, str]:
    """The index's map from tensor to file name; a name is of a file in the same directory, nothing else."""
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise broken(path, "this JSON file has no weight_map of tensors to files, so it is no safetensors index")
    for name, file in weight_map.items():
        if not isinstance(file, str) or file in ("", ".", "..") or any(c in file for c in "/\\:\0"):
            raise broken(path, f"weight_map places tensor {shown(name)} in {shown(file)}, which is no bare file name")
    return weight_map


def _read_shards(
    index: Path, metadata: dict[str, object], headers: dict[str, object]
) -> tuple[list[TensorInfo], dict[Path, Bytes]]:
    """The tensors and maps of all shards; the index's `metadata` goes into `metadata["index"]`."""
    content = read_json(index)
    weight_map = _weight_map(index, content)
    if "metadata" in content:
        metadata["index"] = content["metadata"]
    names = sorted(set(weight_map.values()))
    for number, name in enumerate(names, start=1):
        if not os.path.exists(index.with_name(name)):
            raise broken(index, f"shard {number} of {len(names)} is missing (expected {shown(name)} beside it)")
    tensors: list[TensorInfo] = []
    spans: dict[Path, Bytes] = {}
    for name in names:
        shard = index.with_name(name)
        spans[shard] = map_file(shard)
        if recognise(shard, spans[shard]) != "safetensors":
            raise broken(shard, f"this is no safetensors file, but {index.name} lists it as a shard")
        tensors += _read_header(shard, spans[shard], headers)
    held = {(info.name, info.file.name) for info in tensors}
    for tensor, name in weight_map.items():
        if (tensor, name) not in held:
            raise broken(index, f"weight_map places tensor {shown(tensor)} in {shown(name)}, which does not hold it")
    return tensors, spans


def _read_header(path: Path, data: Bytes, headers: dict[str, object]) -> list[TensorInfo]:
    """The tensors of one file in the order of their bytes; its `__metadata__` goes into `headers`, first one wins."""
    length: int = struct.unpack_from("<Q", bytes(data[:8]))[0]
    if length > LARGEST_JSON:
        raise broken(path, f"the header's length is {length}, but the format allows {LARGEST_JSON} bytes")
    start = 8 + length
    if start > data.size:
        raise broken(
            path, f"the header needs bytes 8..{start} but the file ends at {data.size}: the download is incomplete"
        )
    table = parse_json(path, data[8:start].tobytes(), "the header")
    own = table.pop("__metadata__", {})
    if not isinstance(own, dict) or not all(isinstance(value, str) for value in own.values()):
        raise broken(path, "the header's __metadata__ is no object of strings")
    for key, value in own.items():
        headers.setdefault(key, value)
    tensors = in_byte_order(path, data.size, [_tensor(path, name, row, start) for name, row in table.items()])
    end = start
    for info in tensors:
        if info.offset != end:
            raise broken(path, f"bytes {end}..{info.offset}, before tensor {shown(info.name)}, belong to no tensor")
        end = info.end
    if end != data.size:
        raise broken(path, f"the tensors end at byte {end}, but the file has {data.size} bytes")
    return tensors


def _tensor(path: Path, name: str, row: object, start: int) -> TensorInfo:
    """A row of the header, checked; `start` is where the file's data begin."""
    what = f"tensor {shown(name)}"
    if not isinstance(row, dict) or not row.keys() >= {"dtype", "shape", "data_offsets"}:
        raise broken(path, f"{what} is described by {shown(row)}, but dtype, shape and data_offsets are needed")
    dtype = row["dtype"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise broken(path, f"{what} has dtype {shown(dtype)}, which is not supported")
    shape = _counts(path, what, "shape", row["shape"])
    if len(shape) > LARGEST_RANK:
        raise broken(path, f"{what} has {len(shape)} dimensions, more than {LARGEST_RANK}")
    offsets = _counts(path, what, "data_offsets", row["data_offsets"])
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise broken(path, f"{what} has data_offsets {shown(offsets)}, but a begin and an end not before it are needed")
    bits = element_count(path, name, shape) * _BITS[dtype]
    nbytes = offsets[1] - offsets[0]
    if bits != 8 * nbytes:
        raise broken(path, f"{what} has {nbytes} bytes, but shape {shape} of {dtype} needs {-(-bits // 8)}")
    return TensorInfo(name, shape, dtype, nbytes, path, start + offsets[0])


def _counts(path: Path, what: str, field: str, value: object) -> tuple[int, ...]:
    """`value` as counts; JSON has integers of any length, so each is bounded before it meets arithmetic."""
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item <= LARGEST_COUNT for item in value):
        raise broken(path, f"{what} has {field} {shown(value)}, but a list of counts up to {LARGEST_COUNT} is needed")
    return tuple(value)
