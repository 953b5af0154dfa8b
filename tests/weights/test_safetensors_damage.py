"""Damaged and hostile safetensors files: each is refused with one sentence, known word by word."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from strata.errors import WeightsError
from strata.weights import open_safetensors

TOP = 2**63 - 1
Refused = Callable[[bytes, str], None]


@pytest.fixture
def refused(put: Callable[..., Path]) -> Refused:
    """Require that the bytes are refused with exactly this message, and that the safetensors package refuses them."""

    def check(data: bytes, message: str) -> None:
        path = put(data, "x.safetensors")
        with pytest.raises(WeightsError) as caught:
            open_safetensors(path)
        assert str(caught.value) == f"{path}: {message}"
        with pytest.raises(SafetensorError):
            load_file(path)

    return check


def row(dtype: object = "U8", shape: object = (4,), offsets: object = (0, 4)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_every_truncation_is_refused(put: Callable[..., Path], build: SimpleNamespace) -> None:
    whole = build.safetensors({"a": row(), "__metadata__": {"format": "np"}}, b"abcd")
    open_safetensors(put(whole)).close()
    for length in range(len(whole)):
        path = put(whole[:length])
        with pytest.raises(WeightsError) as caught:
            open_safetensors(path)
        assert str(caught.value).startswith(f"{path}: ")
        if length > 8:
            assert f"but the file ends at {length}: the download is incomplete" in str(caught.value)


def test_header_lengths(refused: Refused, build: SimpleNamespace) -> None:
    refused(
        build.safetensors({}, length=500),
        "the header needs bytes 8..508 but the file ends at 10: the download is incomplete",
    )
    top = 2**64 - 1
    refused(build.safetensors({}, length=top), f"the header's length is {top}, but the format allows 100000000 bytes")


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b'{"a":}', "the header is not valid JSON (Expecting value: line 1 column 6 (char 5))"),
        (b'{"\xff":1}', "the header is not UTF-8 (byte 2 of 7)"),
        (b'{"a":' + b"[" * 100_000, "the header is not valid (its 100005 bytes of JSON nest too deeply)"),
        (b'{"__metadata__":{"a":1}}', "the header's __metadata__ is no object of strings"),
    ],
)
def test_headers_that_are_no_header(refused: Refused, build: SimpleNamespace, header: bytes, message: str) -> None:
    refused(build.safetensors(header), message)


def test_a_repeated_tensor(put: Callable[..., Path], build: SimpleNamespace) -> None:
    one = json.dumps(row())
    path = put(build.safetensors(f'{{"a":{one},"a":{one}}}'.encode(), b"abcd"))
    with pytest.raises(WeightsError, match="the header has the key a twice"):
        open_safetensors(path)


def test_a_number_of_five_thousand_digits(put: Callable[..., Path], build: SimpleNamespace) -> None:
    digits = b"9" * 5000
    header = b'{"a":{"dtype":"U8","shape":[' + digits + b'],"data_offsets":[0,4]}}'
    with pytest.raises(WeightsError, match="the header is not valid JSON"):
        open_safetensors(put(build.safetensors(header, b"abcd")))


@pytest.mark.parametrize(
    ("described", "message"),
    [
        (row(dtype="U9"), "has dtype U9, which is not supported"),
        (row(dtype=7), "has dtype 7, which is not supported"),
        (row(shape=[5]), "has 4 bytes, but shape (5,) of U8 needs 5"),
        (row(dtype="F32"), "has 4 bytes, but shape (4,) of F32 needs 16"),
        (row(shape=[-1]), f"has shape [-1], but a list of counts up to {TOP} is needed"),
        (row(shape=[4.0]), f"has shape [4.0], but a list of counts up to {TOP} is needed"),
        (row(shape=[True]), f"has shape [True], but a list of counts up to {TOP} is needed"),
        (row(shape="4"), f"has shape 4, but a list of counts up to {TOP} is needed"),
        (
            row(shape=[10**4000]),
            f"has shape [100000000000000000...0000000000000000000], but a list of counts up to {TOP} is needed",
        ),
        (row(shape=[2**40, 2**40]), f"has shape ({2**40}, {2**40}), more than {TOP} elements"),
        (row(offsets=[0]), "has data_offsets (0,), but a begin and an end not before it are needed"),
        (row(offsets=[4, 0]), "has data_offsets (4, 0), but a begin and an end not before it are needed"),
        (row(offsets=[None, 4]), f"has data_offsets [None, 4], but a list of counts up to {TOP} is needed"),
        ([1], "is described by [1], but dtype, shape and data_offsets are needed"),
        ({"dtype": "U8"}, "is described by {'dtype': 'U8'}, but dtype, shape and data_offsets are needed"),
    ],
)
def test_impossible_tensors(refused: Refused, build: SimpleNamespace, described: object, message: str) -> None:
    refused(build.safetensors({"up": described}, b"abcd"), f"tensor up {message}")


def test_too_many_dimensions(put: Callable[..., Path], build: SimpleNamespace) -> None:
    path = put(build.safetensors({"up": row(shape=[1] * 65, offsets=[0, 1])}, b"a"))
    with pytest.raises(WeightsError, match="tensor up has 65 dimensions, more than 64"):
        open_safetensors(path)


def test_tensors_that_do_not_tile_the_data(refused: Refused, build: SimpleNamespace) -> None:
    def two(first: tuple[int, int], second: tuple[int, int], data: int) -> tuple[bytes, int]:
        header = {
            name: row(shape=[end - begin], offsets=[begin, end]) for name, (begin, end) in (("a", first), ("b", second))
        }
        whole = build.safetensors(header, bytes(data))
        return whole, len(whole) - data

    whole, start = two((0, 4), (4, 8), 6)
    refused(
        whole,
        f"tensor b needs bytes {start + 4}..{start + 8} but the file ends at {start + 6}: the download is incomplete",
    )
    whole, start = two((0, 4), (3, 8), 8)
    refused(whole, f"tensors a and b overlap (bytes {start}..{start + 4} and {start + 3}..{start + 8})")
    whole, start = two((0, 4), (6, 8), 8)
    refused(whole, f"bytes {start + 4}..{start + 6}, before tensor b, belong to no tensor")
    whole, start = two((0, 4), (4, 8), 11)
    refused(whole, f"the tensors end at byte {start + 8}, but the file has {start + 11} bytes")


def write_index(directory: Path, weight_map: object) -> Path:
    for number, name in enumerate(("one", "two")):
        save_file({f"t{number}": np.zeros(3, np.float32)}, directory / f"{name}.safetensors")
    path = directory / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": weight_map}))
    return path


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"t0": "one.safetensors", "t1": "gone"}, "shard 1 of 2 is missing (expected gone beside it)"),
        ({"t1": "one.safetensors"}, "weight_map places tensor t1 in one.safetensors, which does not hold it"),
        ({"t9": "two.safetensors"}, "weight_map places tensor t9 in two.safetensors, which does not hold it"),
        ({"t0": "../one.safetensors"}, "weight_map places tensor t0 in ../one.safetensors, which is no bare file name"),
        ({"t0": "C:one"}, "weight_map places tensor t0 in C:one, which is no bare file name"),
        ({"t0": "a\0b"}, "weight_map places tensor t0 in a\\x00b, which is no bare file name"),
        ({"t0": 1}, "weight_map places tensor t0 in 1, which is no bare file name"),
        ({}, "this JSON file has no weight_map of tensors to files, so it is no safetensors index"),
        ([1], "this JSON file has no weight_map of tensors to files, so it is no safetensors index"),
    ],
)
def test_indexes_that_do_not_fit(tmp_path: Path, weight_map: object, message: str) -> None:
    path = write_index(tmp_path, weight_map)
    for opened in (path, tmp_path):
        with pytest.raises(WeightsError) as caught:
            open_safetensors(opened)
        assert str(caught.value) == f"{path}: {message}"


def test_a_tensor_in_two_shards(tmp_path: Path) -> None:
    path = write_index(tmp_path, {"t0": "one.safetensors", "t1": "two.safetensors"})
    open_safetensors(path).close()
    save_file({"t0": np.zeros(3, np.float32), "t1": np.zeros(3, np.float32)}, tmp_path / "two.safetensors")
    with pytest.raises(WeightsError, match=r"two\.safetensors: tensor t0 is there also in one\.safetensors \(at bytes"):
        open_safetensors(path)


def test_a_shard_that_is_no_safetensors_file(tmp_path: Path) -> None:
    path = write_index(tmp_path, {"t0": "one.safetensors", "t1": "two.safetensors"})
    (tmp_path / "two.safetensors").write_text("{}")
    with pytest.raises(
        WeightsError, match=r"two\.safetensors: this is no safetensors file, but model\.safetensors\.index"
    ):
        open_safetensors(path)


def test_a_broken_config(tmp_path: Path) -> None:
    save_file({"t": np.zeros(3, np.float32)}, tmp_path / "model.safetensors")
    for text, message in (
        ("{", "the file is not valid JSON (Expecting property name"),
        ("[]", "the file is no JSON object but of type list"),
        ("", "the file is empty (0 bytes)"),
        (
            "version https://git-lfs.github.com/spec/v1\nsize 77\n",
            "this is a Git LFS pointer, not the model of 77 bytes",
        ),
    ):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(WeightsError) as caught:
            open_safetensors(tmp_path)
        assert str(caught.value).startswith(f"{tmp_path / 'config.json'}: {message}")


@pytest.mark.parametrize("filler", [b"{},", b"[],", b'"",', b"1,", b"[[]],", b'{"a":0},'])
def test_memory_is_bounded_by_the_size_of_the_file(
    put: Callable[..., Path], build: SimpleNamespace, filler: bytes
) -> None:
    path = put(build.safetensors(b'{"a":[' + filler * 50_000 + b"0]}"))
    tracemalloc.start()
    try:
        with pytest.raises(WeightsError, match="tensor a is described by"):
            open_safetensors(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 * path.stat().st_size
