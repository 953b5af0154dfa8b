"""Files of conversations: round trips as bits, every kind of damage, full disks, writers killed at any moment."""

import json
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from memory.memory_fakes import ORIGIN, FakeState

from strata.memory.files import ConversationFileError, Origin, look, read, unfinished, write

TOKENS = list(range(300))


def states():
    return [FakeState(TOKENS), FakeState(TOKENS[:200]), FakeState(TOKENS[:77])]


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "a.conversation", states(), ORIGIN)
    return tmp_path / "a.conversation"


def test_states_come_back_and_a_checkpoints_rows_are_written_once(path):
    found = look(path, ORIGIN)
    assert (found.tokens.tolist(), found.lengths, found.made) == (TOKENS, (300, 200, 77), "cpu")
    assert found.size == path.stat().st_size
    back = read(path, ORIGIN, FakeState)
    assert [state.tokens for state in back] == [TOKENS, TOKENS[:200], TOKENS[:77]]
    assert all(state.sound() for state in back)
    alone = path.with_name("alone")
    assert write(alone, states()[:1], ORIGIN) > found.size - 600, "two checkpoints cost their own arrays only"


def test_the_file_is_what_its_description_says(path):
    """An independent reader, from the format's description."""
    data = path.read_bytes()
    magic, version, offset, length, crc = struct.unpack("<8sI12xQQI", data[:44])
    assert (magic, version, offset + length) == (b"STRATA\r\n", 1, len(data))
    assert struct.unpack("<I", data[60:64])[0] == zlib.crc32(data[:60])
    assert zlib.crc32(data[offset:]) == crc
    index = json.loads(data[offset:])
    assert (index["model"], index["kv"], index["made"]) == ("model-1", "bf16", "cpu")
    assert [state["length"] for state in index["states"]] == [300, 200, 77]
    sections = {entry["name"]: entry for entry in index["states"][0]["sections"]}
    rows = sections["layers.0.k"]
    raw = data[rows["offset"] : rows["offset"] + 300 * 2 * 2]
    assert rows["offset"] % 64 == 0
    assert [zlib.crc32(raw)] == rows["crcs"]
    assert np.frombuffer(raw, rows["dtype"]).reshape(rows["shape"])[:, 0].tolist() == TOKENS


def test_every_spoilt_byte_is_found_or_padding(path):
    data = path.read_bytes()
    index = json.loads(data[struct.unpack("<Q", data[24:32])[0] :])
    spans = [(e["offset"], int(np.prod(e["shape"])) * np.dtype(e["dtype"]).itemsize)
             for state in index["states"] for e in state["sections"]]  # fmt: skip
    for at in range(0, len(data), 3):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        found = None
        try:
            back = read(path, ORIGIN, FakeState)
        except ConversationFileError as error:
            found = error
        if found is not None:
            assert found.kind == "invalid"
            assert str(found).startswith(str(path))
            continue
        assert all(state.sound() for state in back)
        assert not any(start <= at < start + size for start, size in spans)
        assert 64 <= at < struct.unpack("<Q", data[24:32])[0], "only padding between sections may change unnoticed"


def test_large_sections_are_checked_block_by_block(tmp_path):
    path, state = tmp_path / "large", FakeState(range(200), width=30_000)  # 12 MB: three blocks of 4 MiB
    write(path, [state], ORIGIN)
    (back,) = read(path, ORIGIN, lambda: FakeState(width=30_000))
    assert back.rows.tobytes() == state.rows.tobytes()
    data = bytearray(path.read_bytes())
    for at in (5 << 20, 9 << 20, (4 << 20) + 1):
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(ConversationFileError, match=r"section layers\.0\.k \(11\.4 MiB\) is wrong"):
            read(path, ORIGIN, FakeState)
        data[at] ^= 1


def test_every_cut_is_found(path):
    data = path.read_bytes()
    for size in [*range(0, 200), *range(200, len(data), 37)]:
        path.write_bytes(data[:size])
        with pytest.raises(ConversationFileError, match="is damaged"):
            look(path, ORIGIN)


@pytest.mark.parametrize(
    ("origin", "sentence"),
    [
        (Origin("model-2", "bf16", "cpu"), "another model, model-1; this engine runs model-2"),
        (Origin("model-1", "f16", "cpu"), r"another cache type \(--kv\), bf16; this engine runs f16"),
    ],
)
def test_a_file_of_another_model_is_refused_and_another_device_is_not(path, origin, sentence):
    with pytest.raises(ConversationFileError, match=sentence):
        read(path, origin, FakeState)
    assert len(read(path, Origin("model-1", "bf16", "gpu"), FakeState)) == 3


@pytest.mark.parametrize("change", ["shape", "name", "dtype"])
def test_a_whole_index_that_does_not_fit_is_refused(path, change):
    data = bytearray(path.read_bytes())
    offset = struct.unpack("<Q", data[24:32])[0]
    index = json.loads(data[offset:])
    entry = index["states"][0]["sections"][1]
    entry[change] = {"shape": [10**12, 10**12], "name": "other", "dtype": "|O"}[change]
    text = json.dumps(index).encode()
    data[offset:] = text
    data[32:44] = struct.pack("<QI", len(text), zlib.crc32(text))
    data[60:64] = struct.pack("<I", zlib.crc32(data[:60]))
    path.write_bytes(data)
    with pytest.raises(ConversationFileError, match="is damaged"):
        read(path, ORIGIN, FakeState)


def test_a_full_disk_loses_only_the_new_file(path):
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(ConversationFileError, match=r"a\.conversation cannot be written: File too large") as caught:
            write(path, [FakeState(range(600))], ORIGIN)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.kind == "storage"
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path], "nothing half-written stays"


def test_a_directory_that_is_not_there_is_an_io_error(tmp_path):
    with pytest.raises(ConversationFileError, match="cannot be written: No such file") as caught:
        write(tmp_path / "none" / "a", states(), ORIGIN)
    assert caught.value.kind == "io"
    with pytest.raises(ConversationFileError, match="cannot be read: No such file"):
        look(tmp_path / "a", ORIGIN)


WRITER = """
import itertools, sys
from pathlib import Path
from memory.memory_fakes import ORIGIN, FakeState
from strata.memory.files import write
state = FakeState(range(200), width=20000)
print("ready", flush=True)
for turn in itertools.count():
    state.history = turn
    write(Path(sys.argv[1]) / f"{turn % 3}.conversation", [state], ORIGIN)
"""


def test_a_writer_killed_at_any_moment_leaves_whole_files(tmp_path):
    """Whatever stands under a name is whole; what was half-written is recognised and only then removed."""
    rng, halves = random.Random(0), 0
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(8):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, env=env)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.15))
        assert unfinished(tmp_path) == [], "a writer that lives keeps its own"
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        for path in tmp_path.glob("*.conversation"):
            (state,) = read(path, ORIGIN, lambda: FakeState(width=20000))
            assert state.tokens == list(range(200))
            assert state.rows.shape == (200, 20000)
        for path in unfinished(tmp_path):
            halves += 1
            path.unlink()
        assert all(path.suffix == ".conversation" for path in tmp_path.iterdir())
    assert halves > 0, "no kill came while a file was written: the test showed nothing"
    assert Path(tmp_path / "0.conversation").exists()
