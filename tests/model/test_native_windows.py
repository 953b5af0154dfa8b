"""The forward pass in C++ against the numpy reference: logits, streams and every array of the state, as bits."""

import numpy as np
import pytest
from model.native_models import Models, assert_same_state

from strata.arithmetic import LaneState, Segment
from strata.cpu import _native
from strata.errors import UsageError

LENGTH = 130


pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.fixture(scope="module")
def wanted(models):
    """Streams, logits and states of three conversations in the reference."""
    reference, found = models.reference(), []
    for lane in range(3):
        state = LaneState.empty(models.spec)
        streams = reference.trunk([Segment(state, models.tokens(lane, LENGTH), 0)])
        found.append((streams.reshape(LENGTH, -1), reference.logits(streams, models.weights.head), state))
    return found


def read(model, tokens, sizes):
    """Logits and streams of a conversation read in windows of these sizes; the lane."""
    lane, logits, streams, at = model.new_lane(), [], [], 0
    for size in sizes:
        part = tokens[at : at + size]
        at += size
        rows = np.full((len(part), model.spec.streams * model.spec.hidden), np.nan, np.float32)
        logits.append(model.forward([lane], [part], [0], [0], rows))
        streams.append(rows)
    assert at == len(tokens)
    return np.concatenate(logits), np.concatenate(streams), lane


SHAPES = {"rows of 1": [1] * 130, "2": [2] * 65, "5": [5] * 26, "64": [64, 64, 2], "130": [130],
          "odd": [1, 3, 31, 1, 32, 33, 29]}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_every_window_shape_gives_the_references_bits(models, wanted, shape):
    streams, logits, state = wanted[0]
    got, rows, lane = read(models.native(), models.tokens(0, LENGTH), SHAPES[shape])
    assert rows.tobytes() == streams.tobytes()
    assert got.tobytes() == logits.tobytes()
    assert_same_state(lane, state)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("isa", _native.available_isas())
def test_every_instruction_set_and_number_of_threads(models, wanted, isa, threads, monkeypatch):
    monkeypatch.setenv("STRATA_ISA", isa)
    try:
        got, rows, lane = read(models.native(threads=threads), models.tokens(1, LENGTH), [1, 5, 94, 1, 29])
        assert _native.selected_isa() == isa
    finally:
        _native.select_isa("auto")
    assert rows.tobytes() == wanted[1][0].tobytes()
    assert got.tobytes() == wanted[1][1].tobytes()
    assert_same_state(lane, wanted[1][2])


def test_random_mixes_of_lanes(models, wanted):
    model, rng = models.native(threads=2), np.random.default_rng(0)
    lanes = [model.new_lane() for _ in range(3)]
    while any(lane.length < LENGTH for lane in lanes):
        turn = [i for i in rng.permutation(3) if lanes[i].length < LENGTH and rng.random() < 0.8]
        parts = [models.tokens(i, LENGTH)[lanes[i].length :][: int(rng.integers(1, 30))] for i in turn]
        firsts, starts = [int(rng.integers(0, len(part) + 1)) for part in parts], [lanes[i].length for i in turn]
        logits = model.forward([lanes[i] for i in turn], parts, [0] * len(turn), firsts)
        for i, part, first, start in zip(turn, parts, firsts, starts, strict=True):
            want = wanted[i][1][start + first : start + len(part)]
            assert logits[: len(want)].tobytes() == want.tobytes()
            logits = logits[len(want) :]
        assert not len(logits)
    for lane, (_, _, state) in zip(lanes, wanted, strict=True):
        assert_same_state(lane, state)


def test_a_window_larger_than_one_part(models):
    tokens = models.tokens(4, 1500)
    model = models.native(threads=2)
    whole, _, first = read(model, tokens, [1500])
    parts, _, second = read(model, tokens, [700, 1, 799])
    assert whole.tobytes() == parts.tobytes()
    kept = first.arrays()
    assert all(value.tobytes() == kept[name].tobytes() for name, value in second.arrays().items())


@pytest.mark.parametrize("kv", ["f32", "f16"])
def test_other_cache_types(models, kv):
    reference, state = models.reference(kv), LaneState.empty(models.spec)
    want = reference.forward([Segment(state, models.tokens(2, 90), 0)])
    got, _, lane = read(models.native(kv), models.tokens(2, 90), [1, 60, 29])
    assert got.tobytes() == want.tobytes()
    assert_same_state(lane, state)


@pytest.mark.parametrize(
    "changes",
    [
        {"ratio": 0},
        {"hidden": 96, "width": 64, "rank": 32, "shared_width": 32, "dense": "Q8_0", "experts": "Q4_0"},
        {"kv_heads": 4, "head_dim": 32, "rope_dim": 16},
        {"budget": 8, "layers": 8},
    ],
    ids=["dense attention", "narrow", "a key head a query head", "small budget"],
)
def test_other_geometries(tmp_path, changes):
    formats = {key: changes.pop(key) for key in ("dense",) if key in changes}
    if isinstance(changes.get("experts"), str):
        formats |= {"experts": changes.pop("experts"), "down": "Q4_0"}
    models = Models.written(tmp_path, **formats, **changes)
    state = LaneState.empty(models.spec)
    want = models.reference().forward([Segment(state, models.tokens(0, 70), 0)])
    got, _, lane = read(models.native(threads=2), models.tokens(0, 70), [1, 40, 1, 28])
    assert got.tobytes() == want.tobytes()
    assert_same_state(lane, state)


def test_a_copy_is_a_checkpoint_and_shares_full_chunks(models, wanted):
    model, tokens = models.native(), models.tokens(0, LENGTH)
    lane = model.new_lane()
    model.forward([lane], [models.tokens(5, 600)], [0], [600])
    own, whole = lane.native.cache_bytes()
    assert own == whole
    kept = lane.copy()
    assert kept.native.cache_bytes()[0] == lane.native.cache_bytes()[0] == 0  # every chunk has two holders
    model.forward([lane], [tokens[:3]], [0], [3])
    assert 0 < lane.native.cache_bytes()[0] < whole / 2  # the open chunks were copied, the full ones are shared
    again = kept.copy()
    first = model.forward([kept], [tokens], [0], [0])
    second = model.forward([again], [tokens], [0], [0])
    third = model.forward([lane], [tokens[3:]], [0], [0])
    assert first.tobytes() == second.tobytes()
    assert first[3:].tobytes() == third.tobytes()


def test_arrays_restore_a_conversation(models, wanted):
    model = models.native()
    _, _, lane = read(model, models.tokens(0, LENGTH), [100, 30])
    other = model.new_lane()
    other.restore(lane.arrays())
    assert_same_state(other, wanted[0][2])
    assert model.forward([other], [[5, 6]], [0], [0]).tobytes() == model.forward([lane], [[5, 6]], [0], [0]).tobytes()


def test_a_damaged_weight_gives_nan_and_no_crash(models):
    model, lane = models.native(), None
    gamma = models.weights.blocks[0].attn_site.gamma
    before = gamma.copy()
    try:
        gamma[:] = np.nan
        lane = model.new_lane()
        assert np.isnan(model.forward([lane], [models.tokens(0, 50)], [0], [40])).all()
    finally:
        gamma[:] = before


def test_misuse_is_refused_with_a_sentence(models):
    model = models.native()
    lane = model.new_lane()
    with pytest.raises(ValueError, match="stands twice in one window"):
        model.forward([lane, lane], [[1], [2]], [0, 0], [0, 0])
    with pytest.raises(ValueError, match=f"token id 100000 is outside the vocabulary of {models.spec.vocab_size}"):
        model.forward([lane], [[100000]], [0], [0])
    model.forward([lane], [[1, 2, 3]], [2], [0])
    with pytest.raises(ValueError, match="2 undecided rows; accept has to say first"):
        model.forward([lane], [[1]], [0], [0])
    with pytest.raises(UsageError, match="2 undecided rows"):
        lane.copy()
    with pytest.raises(UsageError, match="3 rows were accepted, but 2 are undecided"):
        lane.accept(3)
    lane.accept(0)
    assert (lane.length, lane.tokens) == (1, [1])
