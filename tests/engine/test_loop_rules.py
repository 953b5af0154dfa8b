"""Rules of the loop, one a test: who waits for whom, what gives way, what is kept, what is told. [What would break it.]

Tokens are judged by `engine_fakes.answer`, which knows one conversation and no engine.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from engine_fakes import TURN, answer
from engine_talk import Talk, bgen, gen

from strata.model import Segment

PROMPT = [TURN, 3, 1, 4, 1, 5, TURN, 9, 2, 6]


def words(lines: list[str], word: str) -> list[list[str]]:
    return [line.split()[1:] for line in lines if line.split()[0] == word]


def first(lines: list[str], word: str) -> int:
    return next(at for at, line in enumerate(lines) if line.startswith(word))


def spoils(talk: Talk, window: int) -> list[int]:
    """Let a window fail halfway: its states hold the new tokens, wrongly computed. Gets how many lanes it had."""
    forward, failed = talk.model.forward, []

    def half(segments: Sequence[Segment]) -> object:
        if failed or talk.count + 1 < window:
            return forward(segments)
        failed.append(len(segments))
        for segment in segments:
            segment.state.feed(segment.tokens)
            segment.state.history += 1
        raise RuntimeError("the device is gone")

    talk.model.forward = half  # type: ignore[assignment, method-assign]
    return failed


# --------------------------------------------------------------------------------------------------- who waits


def test_what_waits_on_the_control_lines_holds_back_what_comes_behind_it(tmp_path: Path) -> None:
    """SAVE needs no lane, and still means the conversation of the request before it. [SAVE passes a waiting GEN.]"""
    talk = Talk(lanes=1, slots=1, chunk=64, eos_ids=())
    lines = talk.say(bgen(0, PROMPT, 9), gen([5, 6, 7], 3), f"SAVE {tmp_path / 'x'}")
    assert lines[-1].startswith("SAVED 5 ")
    assert first(lines, "BDONE") < first(lines, f"T {answer([5, 6, 7], 1, eos=())[0]}"), "the only lane was in use"


def test_a_signal_ends_what_runs_and_drops_what_waits(tmp_path: Path) -> None:
    """[Orders that wait for a lane or for the control lines are still begun, and SAVE writes its file.]"""
    talk = Talk(lanes=1, slots=2, chunk=64, eos_ids=())
    talk.model.before = lambda rows: talk._window(rows) if talk.count < 2 else talk.inbox.interrupt()
    lines = talk.say(gen(PROMPT, 30), bgen(1, [4, 5], 3), f"SAVE {tmp_path / 'x'}")
    assert [fields[4] for fields in words(lines, "DONE")] == ["cancel"]
    assert lines[-1].startswith("DONE ")
    assert not (tmp_path / "x").exists()


# ---------------------------------------------------------------------------------------- windows and checkpoints


def test_without_checkpoints_no_window_ends_for_one() -> None:
    """[The read pauses where a checkpoint would be, for nothing.]"""
    for checkpoints, windows in ((6, [(0, 6), (6, 4)]), (0, [(0, 10)])):
        talk = Talk(checkpoints=checkpoints, chunk=64)
        talk.ask(PROMPT, 1)
        assert talk.model.windows == windows


@pytest.mark.parametrize("prompt", range(9, 24))
def test_drafts_are_given_up_before_a_lane_ends_for_want_of_room(prompt: int) -> None:
    """An answer fills the pool to its last position. [The lane ends where its drafts do not fit any more.]"""
    talk = Talk(context=1024, pool=256, chunk=256, eos_ids=(), drafts=4, checkpoints=0)
    got = talk.ask([5] * prompt, 1000 - prompt)
    assert got == answer([5] * prompt, 256 - prompt + 1, eos=()), "the last token is never computed"
    assert talk.done.finish == "pool"
    assert talk.done.drafts_accepted > 50


def test_a_window_that_fails_fails_all_lanes_in_it_and_no_other() -> None:
    """Whichever it was, their states may be spoilt. [The first lane fails and the second goes on.]"""
    talk = Talk(chunk=16)
    failed = spoils(talk, window=1)
    prompts = {1: [7] * 12, 2: [8] * 12, 3: [9] * 40}
    lines = talk.say("LANES", *(bgen(lane, prompt, 5) for lane, prompt in prompts.items()))
    assert failed == [2], "lanes in that window"
    assert [fields[:3] for fields in words(lines, "BERR")] == [[lane, "internal", "error:"] for lane in "12"]
    assert {fields[0] for fields in words(lines, "BDONE")} == {"3"}
    assert {fields[0] for fields in words(lines, "BT")} == {"3"}
    for lane, prompt in prompts.items():
        again = talk.say(bgen(lane, prompt, 5))
        assert [int(fields[1]) for fields in words(again, "BT")] == answer(prompt, 5)


@pytest.mark.parametrize("window", [1, 2, 3, 4, 6])
def test_nothing_is_kept_of_a_request_that_failed(window: int) -> None:
    """A read of three windows, one of them to a checkpoint, then tokens. [The state that failed is kept, or a
    checkpoint that its request made.]"""
    talk = Talk(chunk=12, eos_ids=())
    before = [1, 2, 3, TURN, 8]
    got = talk.ask(before, 2)
    prompt = [*before, *got, *range(12), TURN, *range(9)]
    spoils(talk, window)
    lines = talk.say(gen(prompt, 9))
    assert lines[-1].startswith("ERR internal error: RuntimeError(")
    assert talk.ask(prompt, 9) == answer(prompt, 9, eos=())
    assert talk.resumed == 3, "what an earlier request had kept on the way"
