"""Damaged and hostile GGUF files: each is refused with one sentence, known word by word."""

import struct
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
import pytest

from strata.errors import WeightsError
from strata.weights import open_gguf

U64 = struct.Struct("<Q")


@pytest.fixture
def refused(put: Callable[..., Path]) -> Callable[[bytes, str], None]:
    """Require that `open_gguf` refuses the bytes with exactly this message (after the file's path)."""

    def check(data: bytes, message: str) -> None:
        path = put(data)
        with pytest.raises(WeightsError) as caught:
            open_gguf(path)
        assert str(caught.value) == f"{path}: {message}"

    return check


Refused = Callable[[bytes, str], None]


def test_other_versions_and_byte_orders(refused: Refused, build: SimpleNamespace) -> None:
    refused(build.gguf(version=2), "this is GGUF version 2, but version 3 is needed; convert the model again")
    refused(build.gguf(version=0), "this is GGUF version 0, but version 3 is needed; convert the model again")
    refused(build.gguf(version=4), "this is GGUF version 4, but version 3 is needed; convert the model again")


def test_a_big_endian_file_of_the_gguf_package(tmp_path: Path) -> None:
    path = tmp_path / "big.gguf"
    writer = gguf.GGUFWriter(path, "test", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("norm", np.ones(3, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(WeightsError, match=r"big-endian GGUF file \(version 3\); convert it to little-endian"):
        open_gguf(path)


def test_every_truncation_is_refused(put: Callable[..., Path], build: SimpleNamespace) -> None:
    value = struct.pack("<IQ", 8, 2) + build.text("one") + build.text("two")
    pairs = [build.key_value("words", 9, value), build.key_value("number", 4, b"\1\0\0\0")]
    whole = build.gguf(pairs, [build.tensor_row("norm", [8], 0, 0)], bytes(range(32)))
    open_gguf(put(whole)).close()
    for length in range(len(whole)):
        path = put(whole[:length])
        with pytest.raises(WeightsError) as caught:
            open_gguf(path)
        text = str(caught.value)
        assert text.startswith(f"{path}: ")
        assert "\n" not in text
        if length >= 24:
            assert (
                f"ends at {length}: the download is incomplete" in text
                or f"only {length - 24} bytes" in text
                or ("bytes are left" in text)
            )


def test_a_tensor_past_the_end(refused: Refused, build: SimpleNamespace) -> None:
    data = build.gguf([], [build.tensor_row("blk.3.ffn_down_exps.weight", [256, 8], 12, 0)], bytes(100))
    start = len(data) - 100
    refused(
        data,
        f"tensor blk.3.ffn_down_exps.weight needs bytes {start}..{start + 8 * 144} but the file ends at {len(data)}: "
        "the download is incomplete",
    )


def test_counts_beyond_the_file(refused: Refused, build: SimpleNamespace) -> None:
    top = 2**64 - 1
    refused(
        build.gguf(tensor_count=top, alignment=1),
        f"the header declares {top} tensors of at least 24 bytes, but only 8 bytes are left",
    )
    refused(
        build.gguf(key_count=10**12, alignment=1),
        f"the header declares {10**12} key-values of at least 13 bytes, but only 0 bytes are left",
    )
    long_text = build.gguf([build.key_value("k", 8, U64.pack(top))], alignment=1)
    end = len(long_text)
    refused(long_text, f"key k needs bytes {end}..{end + top} but the file ends at {end}: the download is incomplete")
    array = build.gguf([build.key_value("k", 9, struct.pack("<IQ", 8, 2**60) + bytes(20))], alignment=1)
    refused(array, f"key k declares {2**60} values of at least 8 bytes, but only 20 bytes are left")
    long_key = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + U64.pack(2**63) + bytes(9)
    refused(long_key, f"key 1 of 1 needs bytes 32..{32 + 2**63} but the file ends at 41: the download is incomplete")


def test_a_string_in_an_array_past_the_end(refused: Refused, build: SimpleNamespace) -> None:
    value = struct.pack("<IQ", 8, 2) + build.text("one") + U64.pack(500) + b"rest"
    data = build.gguf([build.key_value("words", 9, value)], alignment=1)
    start = len(data) - 4
    refused(
        data,
        f"key words (string 1 of 2) needs bytes {start - 8}..{start + 500} but the file ends at {len(data)}: "
        "the download is incomplete",
    )


def test_texts_that_are_not_utf8(refused: Refused, build: SimpleNamespace) -> None:
    refused(build.gguf([build.key_value(b"a\xff", 4, bytes(4))]), "key 1 of 1 is not UTF-8 (byte 1 of the 2 at 32)")
    refused(build.gguf([build.key_value("k", 8, build.text(b"ab\xe9"))]), "key k is not UTF-8 (byte 2 of the 3 at 45)")
    value = struct.pack("<IQ", 8, 2) + build.text("one") + build.text(b"\x80")
    refused(build.gguf([build.key_value("k", 9, value)]), "key k (string 1 of 2) is not UTF-8 (byte 0 of the 1 at 68)")
    refused(
        build.gguf([], [build.tensor_row(b"\xc3", [8], 0, 0)], bytes(32)),
        "the name of tensor 1 of 1 is not UTF-8 (byte 0 of the 1 at 32)",
    )


def test_values_of_wrong_types(refused: Refused, build: SimpleNamespace) -> None:
    refused(build.gguf([build.key_value("k", 13, bytes(8))]), "key k has value type 13, but GGUF 3 knows only 0 to 12")
    refused(
        build.gguf([build.key_value("k", 9, struct.pack("<IQ", 99, 0))]),
        "key k has value type 99, but GGUF 3 knows only 0 to 12",
    )
    refused(build.gguf([build.key_value("k", 7, b"\2")]), "key k is a bool of value 2, neither 0 nor 1")
    refused(build.gguf([build.key_value("k", 4, bytes(4))] * 2), "key k is there twice")


def test_arrays_nested_too_deep(refused: Refused, build: SimpleNamespace) -> None:
    value = struct.pack("<IQ", 9, 1) * 10_000 + struct.pack("<IQ", 4, 0)
    refused(build.gguf([build.key_value("k", 9, value)]), "key k nests arrays more than 3 deep")


def test_alignment(refused: Refused, build: SimpleNamespace) -> None:
    def with_alignment(kind: int, value: bytes) -> bytes:
        return bytes(build.gguf([build.key_value("general.alignment", kind, value)]))

    refused(with_alignment(4, b"\0\0\0\0"), "key general.alignment is 0, but a power of two is needed")
    refused(with_alignment(4, b"\x30\0\0\0"), "key general.alignment is 48, but a power of two is needed")
    refused(with_alignment(10, bytes(8)), "key general.alignment has value type 10, but 4 (uint32) is needed")
    refused(
        build.gguf([], [build.tensor_row("norm", [8], 0, 4)], bytes(64)),
        "tensor norm lies at offset 4 of the data, not a multiple of the alignment 32",
    )


@pytest.mark.parametrize(
    ("ne", "ggml_type", "message"),
    [
        ([8], 77, "has ggml type 77, which is not supported"),
        ([8], 4, "has ggml type 4, which is not supported"),
        ([100, 2], 12, "has rows of 100 values, but Q4_K stores blocks of 256"),
        ([2**40, 2**40], 0, f"has shape ({2**40}, {2**40}), more than {2**63 - 1} elements"),
        ([2**63], 0, f"has shape ({2**63},), more than {2**63 - 1} elements"),
        ([2**40, 2**40, 0], 0, f"has shape (0, {2**40}, {2**40}), more than {2**63 - 1} elements"),
        ([1] * 5, 0, "has 5 dimensions, but GGUF allows 4"),
    ],
)
def test_impossible_tensors(
    refused: Refused, build: SimpleNamespace, ne: Sequence[int], ggml_type: int, message: str
) -> None:
    refused(build.gguf([], [build.tensor_row("up", ne, ggml_type, 0)], bytes(64)), f"tensor up {message}")


def test_a_rank_beyond_the_file(refused: Refused, build: SimpleNamespace) -> None:
    row = build.tensor_row("up", [8], 0, 0, rank=2**32 - 1)
    refused(build.gguf([], [row], bytes(64)), f"tensor up has {2**32 - 1} dimensions, but GGUF allows 4")


def test_an_offset_beyond_any_file(refused: Refused, build: SimpleNamespace) -> None:
    offset = 2**64 - 32
    data = build.gguf([], [build.tensor_row("up", [8], 0, offset)], bytes(64))
    refused(data, f"tensor up lies at offset {offset} of the data, more than {2**63 - 1}")


def test_overlap_and_duplicates(refused: Refused, build: SimpleNamespace) -> None:
    rows = [build.tensor_row("a", [16], 0, 0), build.tensor_row("b", [8], 0, 32)]
    data = build.gguf([], rows, bytes(64))
    start = len(data) - 64
    refused(data, f"tensors a and b overlap (bytes {start}..{start + 64} and {start + 32}..{start + 64})")
    rows = [build.tensor_row("a", [8], 0, 0), build.tensor_row("a", [8], 0, 32)]
    data = build.gguf([], rows, bytes(64))
    start = len(data) - 64
    refused(data, f"tensor a is there twice (at bytes {start} and {start + 32})")


def test_names_are_shown_on_one_line_and_cut(put: Callable[..., Path], build: SimpleNamespace) -> None:
    name = "line\nbreak\x1b[31m" + "x" * 100_000
    with pytest.raises(WeightsError) as caught:
        open_gguf(put(build.gguf([], [build.tensor_row(name, [8], 77, 0)])))
    text = str(caught.value)
    assert text.isprintable()
    assert "tensor line\\nbreak\\x1b[31mxxx" in text
    assert len(text) < 600


def split_files(build: SimpleNamespace, directory: Path, count: int = 3, **changes: object) -> list[Path]:
    """Shards with one tensor each; a change `key_2=value` (value None: left out) alters a key of shard 2."""
    paths = []
    for number in range(1, count + 1):
        pairs = []
        for key, kind, layout, value in (
            ("split.no", 2, "<H", number - 1),
            ("split.count", 2, "<H", count),
            ("split.tensors.count", 5, "<i", count),
        ):
            value = changes.get(f"{key.replace('.', '_')}_{number}", value)
            if value is not None:
                pairs.append(build.key_value(key, kind, struct.pack(layout, value)))
        name = changes.get(f"tensor_{number}", f"t{number}")
        path = directory / f"model-{number:05d}-of-{count:05d}.gguf"
        path.write_bytes(build.gguf(pairs, [build.tensor_row(name, [8], 0, 0)], bytes(32)))
        paths.append(path)
    return paths


def split_error(path: Path) -> str:
    with pytest.raises(WeightsError) as caught:
        open_gguf(path)
    return str(caught.value)


def test_a_missing_shard_is_named(tmp_path: Path, build: SimpleNamespace) -> None:
    paths = split_files(build, tmp_path)
    open_gguf(paths[0]).close()
    paths[1].unlink()
    expected = "shard 2 of 3 is missing (expected model-00002-of-00003.gguf beside it)"
    assert split_error(paths[0]) == f"{paths[0]}: {expected}"
    assert split_error(paths[2]) == f"{paths[2]}: {expected}"
    assert split_error(tmp_path) == f"{paths[0]}: {expected}"


@pytest.mark.parametrize(
    ("changes", "shard", "message"),
    [
        ({"split_tensors_count_1": 9}, 0, "key split.tensors.count is 9, but the 3 shards hold 3 tensors"),
        ({"split_count_2": 4}, 1, "key split.count is 4, but the other shards say 3"),
        ({"split_count_2": None}, 1, "key split.count is 1, but the other shards say 3"),
        ({"split_no_2": 2}, 1, "key split.no is 2, but this is shard 2 of 3 (1 is needed)"),
        ({"split_no_3": None}, 2, "key split.no is missing, but this is a shard of a split model"),
        ({"split_count_1": 2}, 0, "key split.count is 2, but the name says 3 shards"),
        ({"split_count_1": 0}, 0, "key split.count is 0, but a model has at least one file"),
        ({"split_tensors_count_1": -1}, 0, "key split.tensors.count is -1, but a count is needed"),
    ],
)
def test_shards_that_do_not_fit(
    tmp_path: Path, build: SimpleNamespace, changes: dict[str, object], shard: int, message: str
) -> None:
    paths = split_files(build, tmp_path, **changes)
    assert split_error(paths[0]) == f"{paths[shard]}: {message}"


def test_a_tensor_in_two_shards(tmp_path: Path, build: SimpleNamespace) -> None:
    paths = split_files(build, tmp_path, tensor_3="t1")
    assert split_error(paths[0]).startswith(f"{paths[2]}: tensor t1 is there also in {paths[0].name} (at bytes ")


def test_a_renamed_shard(tmp_path: Path, build: SimpleNamespace) -> None:
    renamed = split_files(build, tmp_path)[0].rename(tmp_path / "first.gguf")
    assert split_error(renamed) == (
        f"{renamed}: this is one of 3 shards, but its name does not end in -00001-of-00003.gguf, "
        "so the others cannot be found"
    )


def test_a_damaged_shard_is_named(tmp_path: Path, build: SimpleNamespace) -> None:
    paths = split_files(build, tmp_path)
    paths[2].write_bytes(paths[2].read_bytes()[:-1])
    assert split_error(paths[0]).startswith(f"{paths[2]}: tensor t3 needs bytes ")
    paths[2].write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123456\n")
    assert "this is a Git LFS pointer, not the model of 123456 bytes" in split_error(paths[0])


def test_the_count_of_an_unsplit_file(refused: Refused, build: SimpleNamespace) -> None:
    pair = build.key_value("split.tensors.count", 5, struct.pack("<i", 2))
    data = build.gguf([pair], [build.tensor_row("a", [8], 0, 0)], bytes(32))
    refused(data, "key split.tensors.count is 2, but the file holds 1 tensors")
    text_count = build.key_value("split.count", 8, build.text("two"))
    refused(build.gguf([text_count]), "key split.count is of type str, but a count is needed")


@pytest.mark.parametrize("kind", ["empty strings", "empty arrays", "bytes", "tensors"])
def test_memory_is_bounded_by_the_size_of_the_file(put: Callable[..., Path], build: SimpleNamespace, kind: str) -> None:
    count = 20_000
    pairs, rows = [], []
    if kind == "empty strings":
        pairs = [build.key_value("k", 9, struct.pack("<IQ", 8, count) + bytes(8 * count))]
    elif kind == "empty arrays":
        pairs = [build.key_value("k", 9, struct.pack("<IQ", 9, count) + struct.pack("<IQ", 4, 0) * count)]
    elif kind == "bytes":
        pairs = [build.key_value("k", 9, struct.pack("<IQ", 0, 20 * count) + bytes(20 * count))]
    else:
        rows = [build.tensor_row(f"{number}", [0], 0, 0) for number in range(count)]
    path = put(build.gguf(pairs, rows))
    tracemalloc.start()
    try:
        with open_gguf(path):
            peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 * path.stat().st_size
