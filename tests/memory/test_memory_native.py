"""The memory with the extension's states and the demo model: nothing is copied, the books are true, bits come back."""

import gc
import statistics
import time
from pathlib import Path

import numpy as np
import pytest

import strata.memory
from strata.cpu import _native
from strata.memory import MAIN, Memory, MemoryLimits, Origin, ParkingLimits, Sizes, Why
from strata.memory.files import read, write
from strata.memory.pool import CHUNK
from strata.memory.sizes import chunk_bytes
from strata.model import Segment, load

DEMO = Path(strata.memory.__file__).parents[1] / "data" / "strata-demo.gguf"
ORIGIN = Origin("demo", "bf16", "cpu")


@pytest.fixture(scope="module")
def model():
    return load(DEMO, threads=1)


def tokens_of(count, seed=0):
    return np.random.default_rng(seed).integers(0, 2000, count).tolist()


def memory_of(model, tokens=16384, **parking):
    limits = MemoryLimits(tokens, parking=ParkingLimits(**({"min_free_bytes": 0} | parking)))
    return Memory(limits, Sizes.of(model.spec, "bf16"), ORIGIN, lambda: model.new_state(model.can_draft))


def feed(model, state, tokens):
    return model.forward([Segment(state, tokens, len(tokens) - 1)])[0]


def run(model, memory, prompt, marks=(), **how):
    """A request that reads its prompt: what it resumed from, and the last row's logits."""
    admission = memory.admit(prompt, **how)
    for at in [*(mark for mark in marks if mark > admission.reused), len(prompt)]:
        logits = feed(model, admission.state, prompt[admission.state.length : at])
        if at in marks:
            memory.checkpoint(admission, Why.TURN)
    memory.finish(admission)
    memory.check()
    return admission.reused, logits.tobytes()


def live_bytes():
    """Bytes of all chunks that live; those of a memory that an earlier test left to the collector are gone."""
    gc.collect()
    return _native.live_chunk_bytes()


def chunks_of(memory, slot=0):
    """Identities of all chunks that kept states have in one attention layer."""
    lives = [node.value.live for node in memory._books.tree if node.value.live is not None]
    return [live.state.native.chunks(slot) for live in lives]


@pytest.fixture(scope="module")
def fresh(model):
    """Logits after prompts, read alone from nothing."""
    return lambda prompt: feed(model, model.new_state(model.can_draft), prompt).tobytes()


def test_sizes_are_those_of_the_caches(model):
    state = model.new_state(True)
    before = live_bytes()
    feed(model, state, tokens_of(4 * CHUNK))
    model.draft([state], [1], 1)
    per_chunk = chunk_bytes(model.spec, "bf16")
    held = state.native.cache_bytes()[1]
    assert live_bytes() - before == held
    # Index keys take whole chunks of 256 blocks a layer; of them the books count the used share.
    layers = sum(kind != "delta" for kind in model.spec.kinds) + model.spec.mtp_layers
    index = layers * model.spec.attention.index_dim * 2
    ratio = max(model.spec.ratios)
    assert 0 <= held - 4 * per_chunk <= index * (256 - 4 * CHUNK // ratio) + layers * per_chunk
    del state
    assert live_bytes() == before, "nothing is left of a state that is gone"


def test_the_books_say_what_is_allocated(model):
    memory = memory_of(model)
    prompt = tokens_of(700)
    run(model, memory, prompt, marks=(300, 512))
    run(model, memory, prompt[:600] + tokens_of(50, 1))
    run(model, memory, prompt + tokens_of(30, 2), place=MAIN)
    tables = chunks_of(memory)
    assert len({chunk for table in tables for chunk in table}) == memory._pool.capacity - memory._pool.free
    same = {}
    lives = [node.value.live for node in memory._books.tree]
    for live, table in zip(lives, tables, strict=True):
        for mine, native in zip(memory._pool.tables[live.holder], table, strict=True):
            assert same.setdefault(mine, native) == native, "one chunk of the books is one chunk of memory"
    assert len(set(same.values())) == len(same)


def test_a_conversation_moves_between_places_without_a_copy_in_under_a_millisecond(model):
    memory, prompt = memory_of(model), tokens_of(4096)
    run(model, memory, prompt, place=0)
    (before,) = chunks_of(memory)
    allocated, times = live_bytes(), []
    for turn in range(9):
        start = time.perf_counter()
        admission = memory.admit([*prompt, 1], place=turn % 3)
        memory.finish(admission)
        times.append(time.perf_counter() - start)
        assert admission.reused == 4096
    assert chunks_of(memory) == [before]
    assert live_bytes() == allocated
    assert statistics.median(times) < 1e-3


def test_a_twin_shares_all_chunks_until_it_writes(model, fresh):
    memory, prompt = memory_of(model), tokens_of(700)
    run(model, memory, prompt, marks=(600,))
    allocated = live_bytes()
    edited = prompt[:600] + tokens_of(20, 3)
    admission = memory.admit(edited)
    assert live_bytes() == allocated
    assert admission.reused == 600
    assert feed(model, admission.state, edited[600:]).tobytes() == fresh(edited)
    memory.finish(admission)
    assert run(model, memory, [*prompt, 5]) == (700, fresh([*prompt, 5])), "the other did not notice"


@pytest.mark.parametrize("disk", [False, True], ids=["ram", "disk"])
def test_parked_and_restored_gives_the_same_bits(model, fresh, tmp_path, disk):
    how = {"directory": tmp_path, "ram_bytes": 0} if disk else {"ram_bytes": 1 << 30}
    memory, prompt = memory_of(model, **how), tokens_of(530)
    run(model, memory, prompt, marks=(300,), place=MAIN, replaces=True)
    run(model, memory, tokens_of(90, 4), place=MAIN, replaces=True)
    if disk:
        memory.close()
        memory = memory_of(model, **how)
    follow, edited = [*prompt, 7, 8, 9], prompt[:310] + [11, 12]
    assert run(model, memory, edited, place=0) == (300, fresh(edited))
    assert run(model, memory, follow, place=MAIN, replaces=True) == (530, fresh(follow))
    memory.close()


def test_files_hold_every_bit_drafts_included(model, tmp_path):
    """Arrays, logits and drafts after a restore, of a state that accepted some drafts and of a checkpoint before it."""
    state, prompt = model.new_state(True), tokens_of(300)
    feed(model, state, prompt)
    checkpoint = state.copy()
    model.forward([Segment(state, [1, 2, 3, 4], 0, 3)])
    state.accept(2)
    write(tmp_path / "a", [state, checkpoint], ORIGIN)
    back = read(tmp_path / "a", ORIGIN, lambda: model.new_state(True))
    for was, now in zip([state, checkpoint], back, strict=True):
        first, second = was.arrays(), now.arrays()
        assert list(first) == list(second)
        assert all(first[name].tobytes() == second[name].tobytes() for name in first)
        assert model.draft([was], [5], 2).tolist() == model.draft([now], [5], 2).tolist()
        assert feed(model, was, [5, 6]).tobytes() == feed(model, now, [5, 6]).tobytes()
    assert back[0].native.chunks(0)[0] != state.native.chunks(0)[0]
    again = read(tmp_path / "a", ORIGIN, lambda: model.new_state(True))
    assert again[1].native.chunks(0)[:1] == again[0].native.chunks(0)[:1], "a checkpoint shares its rows"


def test_a_cache_shorter_than_asked_is_refused(model):
    long, short = model.new_state(True), model.new_state(True)
    feed(model, long, tokens_of(64))
    with pytest.raises(ValueError, match="fewer rows"):
        short.native.share_cache(0, long.native, 65, np.empty(0, np.float32))
    with pytest.raises(ValueError, match="do not fit"):
        short.native.share_cache(0, long.native, 63, np.empty(0, np.float32))
