"""GGUF files written by the `gguf` package (and by hand where it cannot), compared with its reader."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest

from strata.errors import WeightsError
from strata.formats import FORMATS
from strata.weights import Checkpoint, open_gguf


def add_every_value_type(writer: gguf.GGUFWriter) -> None:
    for name, value in (
        ("uint8", 255),
        ("int8", -128),
        ("uint16", 65535),
        ("int16", -32768),
        ("uint32", 2**32 - 1),
        ("int32", -(2**31)),
        ("float32", 0.1),
        ("uint64", 2**64 - 1),
        ("int64", -(2**63)),
        ("float64", 0.1),
        ("bool", True),
        ("string", "größer, 漢字 and\nlines"),
    ):
        getattr(writer, f"add_{name}")(f"test.{name}", value)
    writer.add_float32("test.infinite", math.inf)
    writer.add_bool("test.false", False)
    writer.add_string("test.empty", "x")
    for kind in gguf.GGUFValueType:
        if kind in (gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING):
            continue
        is_flag, is_float = kind is gguf.GGUFValueType.BOOL, kind.name.startswith("FLOAT")
        values = [True, False, True] if is_flag else [0.25, -1.5, 3.0] if is_float else [1, 2, 100]
        writer.add_key_value(f"test.array.{kind.name}", values, gguf.GGUFValueType.ARRAY, sub_type=kind)
    writer.add_array("test.array.STRING", ["a", "", "ß", "word"])


def add_tensors(writer: gguf.GGUFWriter, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    writer.add_tensor("norm", rng.standard_normal(33).astype(np.float32))
    writer.add_tensor("half", rng.standard_normal((3, 5)).astype(np.float16))
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.float64):
        writer.add_tensor(f"plain.{np.dtype(dtype).name}", np.arange(6, dtype=dtype).reshape(3, 2))
    known = {kind.name for kind in gguf.GGMLQuantizationType}
    for name, row in FORMATS.items():
        if name in known and name not in ("F32", "F16"):
            raw = rng.integers(0, 256, (2, 3, 2 * row.block_bytes), dtype=np.uint8)
            writer.add_tensor(f"blk.{name}", raw, raw_dtype=gguf.GGMLQuantizationType[name])


def write(path: Path, *, alignment: int | None = None, split: int = 0, tensors: bool = True) -> None:
    writer = gguf.GGUFWriter(path, "test", split_max_tensors=split)
    if alignment:
        writer.add_custom_alignment(alignment)
    add_every_value_type(writer)
    if tensors:
        add_tensors(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def plain(value: object) -> object:
    return value.tolist() if isinstance(value, np.ndarray) else value


def assert_as_the_oracle_reads_it(checkpoint: Checkpoint, paths: list[Path]) -> None:
    readers = [gguf.GGUFReader(path) for path in paths]
    assert checkpoint.kind == "gguf"
    assert list(checkpoint.files) == paths
    expected = {key: field.contents() for key, field in readers[0].fields.items() if not key.startswith("GGUF.")}
    assert {key: plain(value) for key, value in checkpoint.metadata.items()} == expected
    names = [tensor.name for reader in readers for tensor in reader.tensors]
    assert list(checkpoint.tensors) == names
    for path, reader in zip(paths, readers, strict=True):
        for tensor in reader.tensors:
            info = checkpoint.tensors[tensor.name]
            assert info.name == tensor.name
            assert info.shape == tuple(reversed(tensor.shape.tolist()))
            assert info.format == tensor.tensor_type.name
            assert (info.nbytes, info.offset, info.file) == (tensor.n_bytes, tensor.data_offset, path)
            assert checkpoint.span(tensor.name).tobytes() == tensor.data.tobytes()


@pytest.mark.parametrize("alignment", [None, 8, 64, 4096])
def test_a_file_reads_as_the_gguf_package_reads_it(tmp_path: Path, alignment: int | None) -> None:
    path = tmp_path / "model.gguf"
    write(path, alignment=alignment)
    with open_gguf(path) as checkpoint:
        assert len(checkpoint.tensors) > 25
        assert_as_the_oracle_reads_it(checkpoint, [path])


def test_a_file_without_tensors(tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.gguf"
    write(path, tensors=False)
    with open_gguf(path) as checkpoint:
        assert_as_the_oracle_reads_it(checkpoint, [path])


@pytest.mark.parametrize("opened", [0, 1, -1])
def test_a_split_model_opens_whole_from_any_shard(tmp_path: Path, opened: int) -> None:
    write(tmp_path / "model.gguf", split=7)
    paths = sorted(tmp_path.iterdir())
    assert len(paths) > 3
    with open_gguf(paths[opened]) as checkpoint:
        assert checkpoint.path == paths[opened]
        assert_as_the_oracle_reads_it(checkpoint, paths)


def test_a_split_model_opens_from_its_directory(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", split=7)
    with open_gguf(tmp_path) as checkpoint:
        assert_as_the_oracle_reads_it(checkpoint, sorted(tmp_path.iterdir()))


def test_a_path_may_be_a_string(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf")
    with open_gguf(str(tmp_path / "model.gguf")) as checkpoint:
        assert checkpoint.path == tmp_path / "model.gguf"


def test_arrays_keep_their_types_and_do_not_hold_the_file(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path)
    with open_gguf(path) as checkpoint:
        metadata = checkpoint.metadata
    kinds = {"UINT8": "u1", "INT16": "i2", "FLOAT32": "f4", "FLOAT64": "f8", "UINT64": "u8", "BOOL": "?"}
    for name, dtype in kinds.items():
        array = metadata[f"test.array.{name}"]
        assert isinstance(array, np.ndarray)
        assert array.dtype == np.dtype(dtype)
        assert not array.flags.writeable
        assert array.base is None or isinstance(array.base, np.ndarray) and array.base.base is None
    assert metadata["test.bool"] is True
    assert type(metadata["test.float32"]) is float


def test_nested_arrays(put: Callable[..., Path], build: SimpleNamespace) -> None:
    inner = b"".join(np.array(row, "<u4").tobytes() for row in ([4, 2, 0], [7], [8]))
    value = np.array([9, 2, 0], "<u4").tobytes() + inner + np.array([4, 1, 0, 9], "<u4").tobytes()
    path = put(build.gguf([build.key_value("rows", 9, value)]))
    with open_gguf(path) as checkpoint:
        rows = checkpoint.metadata["rows"]
    assert isinstance(rows, list)
    assert [row.tolist() for row in rows] == [[7, 8], [9]]


def test_spans_are_read_only_views_of_the_map(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path)
    with open_gguf(path) as checkpoint:
        span, again = checkpoint.span("norm"), checkpoint.span("norm")
        assert np.shares_memory(span, again)
        with pytest.raises(ValueError, match="read-only"):
            span[0] = 1
        np.testing.assert_array_equal(span.view("<f4"), gguf.GGUFReader(path).tensors[0].data)


def test_close_leaves_spans_alive_and_ends_the_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path)
    checkpoint = open_gguf(path)
    span = checkpoint.span("norm")
    before = span.tobytes()
    checkpoint.close()
    checkpoint.close()
    assert span.tobytes() == before
    with pytest.raises(WeightsError, match="is closed, tensor norm cannot be read"):
        checkpoint.span("norm")
    assert checkpoint.require("norm").shape == (33,)


def test_zero_sized_tensors_and_scalars(put: Callable[..., Path], build: SimpleNamespace) -> None:
    rows = [
        build.tensor_row("none", [4, 0], 0, 0),
        build.tensor_row("scalar", [], 0, 0),
        build.tensor_row("no blocks", [0, 3], 12, 32),
        build.tensor_row("late", [0], 0, 1 << 40),
    ]
    path = put(build.gguf([], rows, np.float32(2.5).tobytes()))
    with open_gguf(path) as checkpoint:
        assert {name: info.shape for name, info in checkpoint.tensors.items()} == {
            "none": (0, 4),
            "scalar": (),
            "no blocks": (3, 0),
            "late": (0,),
        }
        assert [checkpoint.span(name).size for name in checkpoint.tensors] == [0, 4, 0, 0]
        assert checkpoint.span("scalar").view("<f4")[0] == 2.5


def test_tensors_come_in_the_order_of_their_bytes(put: Callable[..., Path], build: SimpleNamespace) -> None:
    rows = [build.tensor_row("second", [8], 0, 32), build.tensor_row("first", [8], 0, 0)]
    with open_gguf(put(build.gguf([], rows, bytes(64)))) as checkpoint:
        assert list(checkpoint.tensors) == ["first", "second"]


def test_a_large_vocabulary_parses_quickly(put: Callable[..., Path], build: SimpleNamespace) -> None:
    words = [f"token-{number}-ß" for number in range(250_000)]
    value = np.array([8, len(words), 0], "<u4").tobytes() + b"".join(map(build.text, words))
    path = put(build.gguf([build.key_value("tokenizer.ggml.tokens", 9, value)]))
    started = time.perf_counter()
    with open_gguf(path) as checkpoint:
        took = time.perf_counter() - started
        assert checkpoint.metadata["tokenizer.ggml.tokens"] == words
    assert took < 1.0


def test_require_tells_what_was_found_and_what_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write(path)
    with open_gguf(path) as checkpoint:
        count = len(checkpoint.tensors)
        info = checkpoint.require("half", (3, 5), ("F16", "BF16"))
        assert info is checkpoint.tensors["half"]
        assert checkpoint.require("half", [3, 5], "F16") is info
        for arguments, message in (
            (("gone",), f"{path}: tensor gone is missing (there are {count} others)"),
            (("gone", (2, 3)), f"{path}: tensor gone of shape (2, 3) is missing (there are {count} others)"),
            (("half", (5, 3)), f"{path}: tensor half has shape (3, 5), but (5, 3) is needed"),
            (("half", None, ("Q8_0", "F32")), f"{path}: tensor half is stored as F16, but F32 or Q8_0 is needed"),
            (("half", None, "F16_X"), f"{path}: tensor half is stored as F16, but F16_X is needed"),
        ):
            with pytest.raises(WeightsError) as caught:
                checkpoint.require(*arguments)
            assert str(caught.value) == message
