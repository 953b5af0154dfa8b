"""Drafts: undecided rows, their acceptance, and the MTP block, in C++ against the numpy reference."""

import numpy as np
import pytest
from model.native_models import assert_same_state

from strata.arithmetic import LaneState, MtpSegment, Segment
from strata.model.reference import ReferencePath

pytestmark = pytest.mark.usefixtures("poisoned")


@pytest.mark.parametrize("accepted", [[0, 0, 0], [3, 3, 3], [1, 0, 2], [2, 3, 0]])
@pytest.mark.parametrize("start", [1, 2, 31, 61])
def test_a_conversation_with_drafts_is_one_without(models, start, accepted):
    """Rejected drafts leave no trace, accepted ones are as if they had been read; three windows one after the other."""
    model, tokens = models.native(threads=2), models.tokens(0, 90)
    lane, at, got = model.new_lane(), start, []
    model.forward([lane], [tokens[:start]], [0], [start])
    for keep in accepted:
        drafts = [*tokens[at + 1 : at + 1 + keep], *[(t + 1) % 500 for t in tokens[at + 1 + keep : at + 4]]]
        logits = model.forward([lane], [[tokens[at], *drafts]], [3], [0])
        got.append(logits[: keep + 1])
        assert (lane.length, lane.undecided) == (at + 1, 3)
        lane.accept(keep)
        at += keep + 1
        assert (lane.length, lane.tokens) == (at, tokens[:at])
    state = LaneState.empty(models.spec)
    want = models.reference().forward([Segment(state, tokens[:at], start)])
    assert np.concatenate(got).tobytes() == want.tobytes()
    assert_same_state(lane, state)
    after = model.forward([lane], [tokens[at:]], [0], [0])
    assert after.tobytes() == models.reference().forward([Segment(state, tokens[at:], 0)]).tobytes()
    assert_same_state(lane, state)


def test_a_window_of_drafts_alone_and_of_several_lanes(models):
    model, tokens = models.native(), models.tokens(1, 60)
    first, second = model.new_lane(), model.new_lane()
    model.forward([first, second], [tokens[:20], tokens[:33]], [0, 0], [20, 33])
    model.forward([second, first], [tokens[33:36], tokens[20:25]], [3, 2], [0, 0])
    first.accept(1)
    second.accept(2)
    kept = second.copy()
    for lane, length in ((first, 24), (second, 35), (kept, 35)):
        state = LaneState.empty(models.spec)
        models.reference().trunk([Segment(state, tokens[:length], 0)])
        assert_same_state(lane, state)
    logits = [model.forward([lane], [tokens[lane.length : 60]], [0], [0]) for lane in (first, second, kept)]
    assert logits[0][11:].tobytes() == logits[1].tobytes() == logits[2].tobytes()


def test_an_accepted_draft_waits_in_a_copy_too(models):
    """The recurrent state is behind by the accepted rows until the next window; a checkpoint in between holds them."""
    model, tokens = models.native(), models.tokens(2, 50)
    lane = model.new_lane()
    model.forward([lane], [tokens[:30]], [3], [30])
    lane.accept(3)
    kept = lane.copy()
    first = model.forward([lane], [tokens[30:]], [0], [0])
    second = model.forward([kept], [tokens[30:]], [0], [0])
    assert first.tobytes() == second.tobytes()
    other = model.new_lane()
    assert model.forward([other], [tokens], [0], [30]).tobytes() == first.tobytes()


@pytest.mark.parametrize("seed", range(4))
def test_drafting_steps(models, seed):
    """Random steps of draft, window, acceptance and checkpoints: drafts, logits and states are the reference's."""
    rng = np.random.default_rng(seed)
    model, path = models.native(threads=1 + seed % 3), ReferencePath(models.reference())
    lane, slow = model.new_lane(drafts=True), path.new_lane(drafts=True)
    tokens = models.tokens(seed, int(rng.integers(1, 60)))
    assert model.forward([lane], [tokens], [0], [0]).tobytes() == path.forward([slow], [tokens], [0], [0]).tobytes()
    for step in range(8):
        token, depth = int(rng.integers(0, models.spec.vocab_size)), int(rng.integers(1, 5))
        drafts, chances = model.draft([lane], [token], depth)
        want, likely = path.draft([slow], [token], depth)
        assert drafts.tolist() == want.tolist()
        np.testing.assert_allclose(chances, likely, rtol=1e-4)
        if rng.random() < 0.2:
            assert model.draft([lane], [token], depth)[0].tolist() == drafts.tolist()
        count = int(rng.integers(0, depth + 1))
        follows = token if rng.random() < 0.7 else int(rng.integers(0, models.spec.vocab_size))
        window = [follows, *drafts[0, :count].tolist()]
        got = model.forward([lane], [window], [count], [0])
        assert got.tobytes() == path.forward([slow], [window], [count], [0]).tobytes()
        keep = int(rng.integers(0, count + 1))
        lane.accept(keep)
        slow.accept(keep)
        if rng.random() < 0.3:
            lane = lane.copy()
        if step % 2:
            assert_same_state(lane, slow.state, mtp_rows=slow.state.mtp.k.length)


def test_drafts_of_several_lanes_and_after_a_pause(models):
    """Lanes draft together; windows without a draft in between, prompt chunks among them, are caught up."""
    model, path = models.native(), ReferencePath(models.reference())
    lanes, slow = [model.new_lane(drafts=True) for _ in range(2)], [path.new_lane(drafts=True) for _ in range(2)]
    texts = [models.tokens(lane, 60) for lane in (7, 8)]
    for start, stop in ((0, 20), (20, 21), (21, 23), (23, 50), (50, 51)):
        model.forward(lanes, [t[start:stop] for t in texts], [0, 0], [stop - start] * 2)
        path.forward(slow, [t[start:stop] for t in texts], [0, 0], [stop - start] * 2)
    following = [t[51] for t in texts]
    assert model.draft(lanes, following, 3)[0].tolist() == path.draft(slow, following, 3)[0].tolist()
    restored = model.new_lane(drafts=True)
    restored.restore(lanes[1].arrays())
    assert model.draft([restored], following[1:], 3)[0].tolist() == path.draft(slow[1:], following[1:], 3)[0].tolist()


def test_the_mtp_block_alone(models):
    reference, model, tokens = models.reference(), models.native(), models.tokens(3, 80)
    streams = reference.trunk([Segment(LaneState.empty(models.spec), tokens, 80)])[:-1]
    state = LaneState.empty(models.spec)
    want, out = reference.mtp([MtpSegment(state.mtp, streams, tokens[1:])])
    lane, flat = model.new_lane(), streams.reshape(len(streams), -1)
    for start, stop in ((0, 1), (1, 42), (42, 79)):
        logits, own = model.mtp([lane], [stop - start], flat[start:stop], np.array(tokens[start + 1 : stop + 1]))
        assert logits.tobytes() == want[start:stop].tobytes()
        assert own.tobytes() == out[start:stop].tobytes()
