"""safetensors files written by the `safetensors` package, compared with what was written and with its reader."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from strata.errors import WeightsError
from strata.weights import Checkpoint, open_safetensors

DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    result = {name: rng.integers(0, 100, (3, 4)).astype(name) for name in DTYPES}
    result["none"] = np.zeros((0, 7), np.float32)
    result["scalar"] = np.array(2.5, np.float32)
    result["größe"] = np.arange(5, dtype=np.int8)
    return result


def write_shards(directory: Path, shards: int = 3, extra: dict[str, object] | None = None) -> dict[str, np.ndarray]:
    """A sharded model with its index; what it holds."""
    everything = arrays()
    weight_map = {}
    for number in range(shards):
        name = f"model-{number + 1:05d}-of-{shards:05d}.safetensors"
        part = dict(list(everything.items())[number::shards])
        save_file(part, directory / name, metadata={"format": "np", f"shard{number}": "x"})
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": 5}, "weight_map": weight_map} | (extra or {})
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return everything


def assert_holds(checkpoint: Checkpoint, expected: dict[str, np.ndarray]) -> None:
    assert checkpoint.kind == "safetensors"
    assert set(checkpoint.tensors) == set(expected)
    for name, array in expected.items():
        info = checkpoint.tensors[name]
        assert (info.name, info.shape, info.nbytes) == (name, array.shape, array.nbytes)
        assert info.format == DTYPES[array.dtype.name]
        assert checkpoint.span(name).tobytes() == array.tobytes()
        assert info.file.read_bytes()[info.offset : info.offset + info.nbytes] == array.tobytes()
        assert not checkpoint.span(name).flags.writeable
    order = [(checkpoint.files.index(info.file), info.offset) for info in checkpoint.tensors.values()]
    assert order == sorted(order)


def test_a_single_file(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(arrays(), path, metadata={"format": "np", "note": "größer"})
    with open_safetensors(path) as checkpoint:
        assert_holds(checkpoint, arrays())
        assert checkpoint.files == (path,)
        assert checkpoint.metadata == {"__metadata__": {"format": "np", "note": "größer"}}
        with safe_open(path, framework="numpy") as oracle:
            for name in oracle.keys():  # noqa: SIM118 - a safe_open is no mapping
                assert list(checkpoint.tensors[name].shape) == oracle.get_slice(name).get_shape()
                assert checkpoint.tensors[name].format == oracle.get_slice(name).get_dtype()


def test_the_formats_that_only_torch_writes(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch_file

    path = tmp_path / "weights.safetensors"
    base = torch.linspace(-2, 2, 24).reshape(2, 3, 4)
    tensors = {
        "BF16": base.to(torch.bfloat16),
        "F8_E4M3": base.to(torch.float8_e4m3fn),
        "F8_E5M2": base.to(torch.float8_e5m2),
    }
    save_torch_file(tensors, path)
    with open_safetensors(path) as checkpoint:
        for name, tensor in tensors.items():
            info = checkpoint.require(name, (2, 3, 4), name)
            assert checkpoint.span(name).tobytes() == tensor.view(torch.uint8).numpy().tobytes()
            assert info.nbytes == tensor.nbytes


def test_values_of_less_than_a_byte(put: Callable[..., Path], build: SimpleNamespace) -> None:
    header = {
        "four": {"dtype": "F4", "shape": [3, 6], "data_offsets": [0, 9]},
        "six": {"dtype": "F6_E2M3", "shape": [4], "data_offsets": [9, 12]},
    }
    with open_safetensors(put(build.safetensors(header, bytes(range(12))))) as checkpoint:
        assert checkpoint.span("four").tolist() == list(range(9))
        assert checkpoint.span("six").tolist() == [9, 10, 11]


@pytest.mark.parametrize("opened", [".", "model.safetensors.index.json", "model-00002-of-00003.safetensors"])
def test_shards_open_whole_from_directory_index_or_shard(tmp_path: Path, opened: str) -> None:
    expected = write_shards(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "test", "layers": [1, 2]}')
    with open_safetensors(tmp_path / opened) as checkpoint:
        assert_holds(checkpoint, expected)
        assert [file.name for file in checkpoint.files] == [f"model-{n:05d}-of-00003.safetensors" for n in (1, 2, 3)]
        assert checkpoint.metadata == {
            "config": {"model_type": "test", "layers": [1, 2]},
            "index": {"total_size": 5},
            "__metadata__": {"format": "np", "shard0": "x", "shard1": "x", "shard2": "x"},
        }


def test_a_directory_with_one_file_and_a_config(tmp_path: Path) -> None:
    save_file(arrays(), tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "test"}')
    (tmp_path / "tokenizer.json").write_text("{}")
    with open_safetensors(tmp_path) as checkpoint:
        assert_holds(checkpoint, arrays())
        assert checkpoint.metadata["config"] == {"model_type": "test"}
    with open_safetensors(tmp_path / "model.safetensors") as checkpoint:
        assert checkpoint.metadata["config"] == {"model_type": "test"}


def test_a_header_length_that_begins_with_a_brace(put: Callable[..., Path], build: SimpleNamespace) -> None:
    header = b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}'.ljust(ord("{"))
    with open_safetensors(put(build.safetensors(header, b"\5"))) as checkpoint:
        assert checkpoint.span("a").tolist() == [5]


def test_close_leaves_spans_alive(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(arrays(), path)
    with open_safetensors(path) as checkpoint:
        span = checkpoint.span("float32")
    assert span.tobytes() == arrays()["float32"].tobytes()
    with pytest.raises(WeightsError, match="closed"):
        checkpoint.span("float32")
