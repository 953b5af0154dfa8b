"""Weights at load: what is rearranged, what stays in the file, and how much memory that takes."""

import logging
import subprocess
import sys

import numpy as np
import pytest
from model.native_models import Models

from strata.arithmetic import Matrix
from strata.cpu import _native, loading
from strata.cpu.lane import Lane
from strata.cpu.loading import parts, repacked_size, should_repack
from strata.cpu.products import file_map, native_matrix


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return Models.written(tmp_path_factory.mktemp("loading"), dense="Q8_0", experts="Q4_K", down="Q8_0")


def windows(models, repack, monkeypatch, threads=1):
    """Logits and the lane's state after two windows."""
    monkeypatch.setenv("STRATA_REPACK", repack)
    native = models.native(threads=threads)
    lane: Lane = native.new_lane()
    tokens = models.tokens(0, 40)
    logits = native.forward([lane], [tokens[:30]], [0], [0]), native.forward([lane], [tokens[30:]], [0], [0])
    return np.concatenate(logits), lane.arrays(), native


def test_the_same_bits_rearranged_or_where_they_lie(models, monkeypatch):
    logits, state, native = windows(models, "on", monkeypatch)
    assert any(w.repacked for _, w in native._matrices.values())
    for repack, threads in (("off", 1), ("on", 2), ("off", 3)):
        other, others_state, native = windows(models, repack, monkeypatch, threads)
        assert other.tobytes() == logits.tobytes()
        assert {name: a.tobytes() for name, a in others_state.items()} == {n: a.tobytes() for n, a in state.items()}
        assert any(w.repacked for _, w in native._matrices.values()) == (repack == "on")


def test_rows_that_are_gathered_are_not_rearranged(models, monkeypatch):
    monkeypatch.setenv("STRATA_REPACK", "on")
    native, weights = models.native(), models.weights
    table = next(block.ngram.table for block in weights.blocks if block.ngram)
    handles = {id(w): handle for w, handle in native._matrices.values()}
    assert weights.embedding is weights.output or not handles[id(weights.embedding)].repacked
    assert not handles[id(table)].repacked
    known = [w for part in parts(weights) for w in part]
    assert len(known) == len({id(w) for w in known})
    assert {id(w) for w in known} == set(handles) - {id(table), id(weights.embedding)} | {id(weights.output)}
    assert all(handles[id(w)].repacked == (repacked_size(w) > 0) for w in known)


def test_progress_and_the_log_say_what_happens(models, monkeypatch, caplog):
    monkeypatch.setenv("STRATA_REPACK", "auto")
    needed = sum(repacked_size(w) for part in parts(models.weights) for w in part)
    for available, says in ((needed * 2, "rearranged in memory"), (needed, "used where they lie in the file")):
        monkeypatch.setattr(loading, "available_memory", lambda have=available: have)
        steps: list[tuple[str, int, int]] = []

        def note(*step, into=steps):
            into.append(step)

        with caplog.at_level(logging.INFO):
            loading.make_ready(models.native().native, models.weights, native_matrix, note)
        assert says in caplog.records[-1].getMessage()
        assert f"{needed / 2**20:.0f} MiB" in caplog.records[-1].getMessage()
        total = len(parts(models.weights))
        assert steps == [("weights", done, total) for done in range(1, total + 1)]


@pytest.mark.parametrize(
    ("choice", "available", "wanted"),
    [("auto", 1100, True), ("auto", 1099, False), ("auto", None, True), ("on", 0, True), ("off", 10**9, False)],
)
def test_when_weights_are_rearranged(choice, available, wanted, monkeypatch):
    monkeypatch.setenv("STRATA_REPACK", choice)
    assert should_repack(1000, available) is wanted


def test_only_read_only_maps_of_files_are_given_back(tmp_path):
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(200)) * 34)
    whole = np.memmap(path, np.uint8, "r")
    assert file_map(whole[34:].reshape(-1, 2)[3]) == (whole.ctypes.data, 200 * 34)
    assert file_map(np.memmap(path, np.uint8, "c")[34:]) is None
    assert file_map(np.fromfile(path, np.uint8)) is None


def test_memory_that_is_no_file_keeps_its_bytes(models, monkeypatch):
    """Rearranging gives file pages back; an array of our own must not lose its contents."""
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 60, 4096 * 34, dtype=np.uint8)
    kept = raw.copy()
    monkeypatch.setenv("STRATA_REPACK", "on")
    handle = native_matrix(Matrix("Q8_0", raw, 64, 2048))
    assert _native.repack_all(models.native().native, [handle]) > 0
    assert handle.repacked
    assert np.array_equal(raw, kept)


PROGRAM = """
import ctypes
import os
import sys
from pathlib import Path

from strata import families
from strata.arithmetic import bind
from strata.cpu.loading import parts, repacked_size
from strata.cpu.model import NativeModel
from strata.weights import open_gguf

def resident(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))

def cached(raw):
    # Bytes of an array in a file map that the system has in memory.
    first = raw.ctypes.data // 4096 * 4096
    size = raw.ctypes.data + raw.size - first
    pages = (ctypes.c_ubyte * (size // 4096 + 1))()
    assert ctypes.CDLL(None).mincore(ctypes.c_void_p(first), ctypes.c_size_t(size), pages) == 0
    return sum(page & 1 for page in pages) * 4096

opened = families.open_family(open_gguf(Path(sys.argv[1])))
weights = bind(opened.source, opened.spec)
needed = sum(repacked_size(w) for part in parts(weights) for w in part)
table = next(block.ngram.table for block in weights.blocks if block.ngram)
start, files = resident("VmRSS"), resident("RssFile")
model = NativeModel(opened.spec, weights, "bf16", int(sys.argv[2]))
peak, mapped = resident("VmHWM") - start, resident("RssFile") - files
with open(sys.argv[1], "rb") as file:
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
cold = cached(table.raw) == 0
model.forward([model.new_lane()], [[5, 6, 7, 8]], [0], [3])
print(needed, peak, mapped, int(cold), table.raw.size, cached(table.raw))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("threads", [1, 2])
def test_resident_memory(tmp_path, threads, monkeypatch):
    """The peak of loading is the weights in use: not the file beside its tiles, not the tables that are gathered."""
    monkeypatch.setenv("STRATA_REPACK", "on")
    Models.written(tmp_path, dense="Q8_0", experts="Q8_0", down="Q8_0", width=2048, vocab=16384, ngram_rows=60013)
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "model.gguf"), str(threads)]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    needed, peak, mapped, cold, table, cached = (int(word) for word in done.stdout.split())
    spare = 10 * 2**20  # code, Python's objects, float weights, the runs of tiles that are being repacked
    assert needed > 6 * spare
    assert table > spare
    assert peak < needed * 1.1 + spare
    assert mapped < spare
    assert not cold or 0 < cached < table / 2
