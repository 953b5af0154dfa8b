"""A conversation saved by one path goes on on the other, bit for bit: files written by C++, read by numpy, and back."""

import itertools

import numpy as np
import pytest

from strata.cpu.pieces import whole
from strata.errors import UsageError
from strata.memory import ConversationFileError, Origin
from strata.memory.files import look, read, write
from strata.model.reference import ReferencePath

KV = ["bf16", "f16", "f32"]


class Paths:
    """Both paths of one model, and files between them."""

    def __init__(self, models, directory, kv="bf16"):
        self.native, self.numpy = models.native(kv), ReferencePath(models.reference(kv))
        self.both = {"native": self.native, "numpy": self.numpy}
        self.origin = Origin("toy", kv, "a test")
        self._directory, self._number = directory, itertools.count()

    def saved(self, *lanes):
        path = self._directory / f"{next(self._number)}.conversation"
        for lane in lanes:
            lane.settle()
        write(path, lanes, self.origin)
        return path

    def read(self, path, onto, drafts=True):
        return read(path, self.origin, lambda: self.both[onto].new_lane(drafts))


@pytest.fixture
def paths(models, tmp_path):
    return Paths(models, tmp_path)


def feed(path, lane, tokens, tentative=0):
    return path.forward([lane], [tokens], [tentative], [0])


def sections(lane, **how):
    return {name: whole(section) for name, section in lane.sections(**how)}


@pytest.mark.parametrize("kv", KV)
@pytest.mark.parametrize("seed", range(3))
def test_a_conversation_that_changes_paths_is_one_that_stays(models, tmp_path, kv, seed):
    """Drafts, windows, accepted and refused rows, and a file to the other path after every step."""
    rng, paths = np.random.default_rng(seed), Paths(models, tmp_path, kv)
    at = ("native", "numpy")[seed % 2]
    stays, moves = paths.native.new_lane(True), paths.both[at].new_lane(True)
    tokens = models.tokens(seed, int(rng.integers(30, 60)))
    assert feed(paths.native, stays, tokens).tobytes() == feed(paths.both[at], moves, tokens).tobytes()
    for _ in range(6):
        token, depth = int(rng.integers(0, models.spec.vocab_size)), int(rng.integers(1, 4))
        drafts = paths.native.draft([stays], [token], depth)[0]
        if rng.random() < 0.7:  # some windows come without a draft before them
            assert paths.both[at].draft([moves], [token], depth)[0].tolist() == drafts.tolist()
        if rng.random() < 0.5:  # a file between the draft and its window
            at = {"native": "numpy", "numpy": "native"}[at]
            (moves,) = paths.read(paths.saved(moves), at)
        window = [token, *drafts[0].tolist()]
        want = feed(paths.native, stays, window, depth)
        assert feed(paths.both[at], moves, window, depth).tobytes() == want.tobytes()
        keep = int(rng.integers(0, depth + 1))
        stays.accept(keep)
        moves.accept(keep)
        at = {"native": "numpy", "numpy": "native"}[at]
        (moves,) = paths.read(paths.saved(moves), at)
        assert moves.tokens == stays.tokens


@pytest.mark.parametrize("kv", KV)
def test_both_paths_write_the_same_sections(models, tmp_path, kv):
    paths, tokens = Paths(models, tmp_path, kv), models.tokens(4, 75)
    lanes = [path.new_lane(True) for path in paths.both.values()]
    for lane, path in zip(lanes, paths.both.values(), strict=True):
        feed(path, lane, tokens[:-5])
        feed(path, lane, tokens[-5:], 3)
        lane.accept(3)
        path.draft([lane], [1], 1)  # the MTP block has read all that it can
        lane.settle()
    for rows in (True, False):
        native, numpy = (sections(lane, rows=rows) for lane in lanes)
        assert list(native) == list(numpy)
        for name, array in native.items():
            assert (array.dtype, array.shape) == (numpy[name].dtype, numpy[name].shape), name
            assert array.tobytes() == numpy[name].tobytes(), name
    first, second = (paths.saved(lane).read_bytes() for lane in lanes)
    assert first == second


@pytest.mark.parametrize(("one", "other"), [("native", "numpy"), ("numpy", "native"), ("numpy", "numpy")])
def test_checkpoints_change_paths_with_their_conversation(models, paths, one, other):
    tokens, lane = models.tokens(5, 80), paths.both[one].new_lane(True)
    kept = []
    for start, stop in ((0, 33), (33, 50), (50, 71)):
        feed(paths.both[one], lane, tokens[start:stop])
        kept.append(lane.copy())
    back = paths.read(paths.saved(*reversed(kept)), other)
    assert [state.length for state in back] == [71, 50, 33]
    for state, was in zip(back, reversed(kept), strict=True):
        length = state.length
        assert paths.both[other].draft([state], [7], 3)[0].tolist() == paths.both[one].draft([was], [7], 3)[0].tolist()
        got = feed(paths.both[other], state, tokens[length : length + 9])
        assert got.tobytes() == feed(paths.both[one], was, tokens[length : length + 9]).tobytes()
    assert back[0].tokens == tokens[:80], "a checkpoint that goes on changes no other"


def test_a_checkpoint_whose_mtp_block_had_read_further(models, paths):
    """Two requests read one prompt in different windows; one's checkpoint is saved with the other's end."""
    tokens = models.tokens(6, 60)
    end, checkpoint = paths.native.new_lane(True), paths.native.new_lane(True)
    for part in (tokens[:36], tokens[36:43]):
        feed(paths.native, end, part)
    feed(paths.native, checkpoint, tokens[:40])
    paths.native.draft([checkpoint], [7], 1)
    rows = [int(sections(lane, rows=False)["mtp.rows"]) for lane in (end, checkpoint)]
    assert rows[0] < rows[1], "the windows no longer make what this test is about"
    path = paths.saved(end, checkpoint)
    for onto in paths.both:
        back = paths.read(path, onto)
        for state, was in zip(back, (end, checkpoint), strict=True):
            assert paths.both[onto].draft([state], [7], 3)[0].tolist() == paths.native.draft([was], [7], 3)[0].tolist()
            want = feed(paths.native, was.copy(), tokens[was.length :])
            assert feed(paths.both[onto], state, tokens[was.length :]).tobytes() == want.tobytes()


@pytest.mark.parametrize("onto", ["native", "numpy"])
@pytest.mark.parametrize("made", ["native", "numpy"])
def test_without_mtp_rows_a_drafting_lane_refuses_and_nothing_changes(models, paths, made, onto):
    tokens = models.tokens(7, 40)
    plain = paths.both[made].new_lane(False)
    feed(paths.both[made], plain, tokens)
    assert not any(name.startswith("mtp.") for name in sections(plain))
    path = paths.saved(plain, plain)
    lane = paths.both[onto].new_lane(True)
    feed(paths.both[onto], lane, tokens[:20])
    before = sections(lane)
    with pytest.raises(UsageError, match=r"without the MTP block's rows.*--mtp off can\."):
        lane.restore(sections(plain))
    with pytest.raises(UsageError, match="without the MTP block's rows"):
        lane.shorter(10, sections(plain, rows=False))
    assert {name: array.tobytes() for name, array in sections(lane).items()} == {
        name: array.tobytes() for name, array in before.items()
    }
    with pytest.raises(ConversationFileError, match=r"conversation cannot be used: .* without the MTP block's rows"):
        paths.read(path, onto)
    drafting = Origin("toy", "bf16", "a test", drafts=True)
    with pytest.raises(ConversationFileError, match=r"cannot be used: .* without the MTP block's rows") as e:
        look(path, drafting)
    assert (e.value.kind, "damaged" in str(e.value)) == ("invalid", False)
    assert look(path, paths.origin).lengths == (40, 40)
    for state in paths.read(path, onto, drafts=False):
        got = feed(paths.both[onto], state, [3, 4, 5])
        assert got.tobytes() == feed(paths.both[made], plain.copy(), [3, 4, 5]).tobytes()


@pytest.mark.parametrize("onto", ["native", "numpy"])
@pytest.mark.parametrize("made", ["native", "numpy"])
def test_mtp_rows_do_not_disturb_a_lane_that_does_not_draft(models, paths, made, onto):
    tokens, lane = models.tokens(8, 70), paths.both[made].new_lane(True)
    feed(paths.both[made], lane, tokens[:40])
    checkpoint = lane.copy()
    feed(paths.both[made], lane, tokens[40:60], 2)
    lane.accept(1)
    path = paths.saved(lane, checkpoint)
    assert look(path, Origin("toy", "bf16", "a test", drafts=True)).lengths == (59, 40)
    for state, was in zip(paths.read(path, onto, drafts=False), (lane, checkpoint), strict=True):
        got = feed(paths.both[onto], state, tokens[was.length :])
        assert got.tobytes() == feed(paths.both[made], was, tokens[was.length :]).tobytes()
        assert not any(name.startswith("mtp.") for name in sections(state))


@pytest.mark.parametrize("onto", ["native", "numpy"])
def test_undecided_rows_are_decided_first(models, paths, onto):
    lane = paths.both[onto].new_lane(True)
    feed(paths.both[onto], lane, models.tokens(9, 20), 2)
    for ask in (lane.settle, lambda: sections(lane), lambda: lane.shorter(3, {}), lane.copy):
        with pytest.raises(UsageError, match="2 undecided rows; accept has to be called first"):
            ask()


@pytest.mark.parametrize("onto", ["native", "numpy"])
def test_sections_that_do_not_fit_are_refused(models, paths, onto):
    lane, fresh = paths.both[onto].new_lane(True), paths.both[onto].new_lane
    feed(paths.both[onto], lane, models.tokens(10, 40))
    good, short = sections(lane), sections(lane, rows=False)
    cache = next(name for name in good if name.endswith(".k"))[:-1]
    state = next(name for name in good if name.endswith(".state"))
    for name, bad in [
        (state, good[state][:-1]),
        (f"{cache}k", good[f"{cache}k"].astype(np.float64)),
        (f"{cache}v", good[f"{cache}v"][..., :-1]),
        ("mtp.waiting", np.concatenate([good["mtp.waiting"]] * 2)),
        ("mtp.following", np.zeros(30, np.int64)),
    ]:
        with pytest.raises((ValueError, TypeError)):
            fresh(True).restore({**good, name: bad})
    with pytest.raises(ValueError, match="fewer rows"):
        lane.shorter(20, {**short, f"{cache}rows": np.array(41)})
    fresh(True).restore(good)
