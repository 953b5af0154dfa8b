"""Rules of the loop, one a test: who waits for whom, what gives way, what is kept, what is told. [What would break it.]

Tokens are judged by `engine_fakes.answer`, which knows one conversation and no engine.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from engine_fakes import EOS, NANS, RAISES, TURN, answer
from engine_talk import Talk, bgen, gen

from strata.engine.scheduler import Verdict, Window
from strata.memory import Marking
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


def verdicts_of(talk: Talk) -> list[Verdict]:
    """What the scheduler is told of drafts from now on."""
    verdicts: list[Verdict] = []
    measured = talk.engine.scheduler.measured

    def noted(window: Window, seconds: float, found: Mapping[int, Verdict]) -> None:
        verdicts.extend(found.values())
        measured(window, seconds, found)

    talk.engine.scheduler.measured = noted  # type: ignore[assignment, method-assign]
    return verdicts


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


def test_stop_means_no_order_that_was_answered_already(tmp_path: Path) -> None:
    """[A refused line stays open and takes the STOP of the request behind it; so does one that needs no lane.]"""
    talk = Talk(chunk=64, eos_ids=())
    talk.at_window[4] = ["STOP"]
    lines = talk.say("nonsense", gen([1] * 300), "VRAM", f"SAVE {tmp_path / 'x'}", gen(PROMPT, 30))
    assert words(lines, "DONE")[0][4] == "cancel"
    talk = Talk(chunk=64, eos_ids=())
    talk.at_window[4] = ["BSTOP 1"]
    lines = talk.say("LANES", bgen(1, PROMPT, 30), bgen(1, [4, 5]), bgen(2, PROMPT, 30))
    assert {fields[0]: fields[2] for fields in words(lines, "BDONE")} == {"1": "cancel", "2": "length"}


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


# ------------------------------------------------------------------------------------------------ giving way


def test_a_read_that_gave_way_outlasts_conversations_used_later() -> None:
    """Its tokens were read for nobody yet. [It is kept as any conversation is: the longest unused goes first.]"""
    talk = Talk(context=1024, pool=1024, slots=3, chunk=100, eos_ids=(), checkpoints=1, marking=Marking(None, 0, 0))
    long = [n % 40 for n in range(400)]
    talk.at_window[3] = ["BYIELD 0"]
    talk.say(bgen(0, long, 5))
    talk.at_window = {}
    talk.say(bgen(1, [41] * 20, 5))
    talk.say(bgen(2, [42] * 300, 5))  # 2 of 4 chunks, of which the read has 2 and the conversation 1
    assert talk.say(bgen(0, long, 5))[0] == "RESUME 300"
    assert not words(talk.say(bgen(1, [*[41] * 20, 1], 5)), "RESUME"), "it was the other that made room"


def test_a_solo_read_that_gave_way_stands_in_its_slot() -> None:
    """[It stands on the control lines still, and the next solo request replaces it.]"""
    talk = Talk(slots=2, chunk=20, eos_ids=(), marking=Marking(None, 0, 0))
    long = [n % 40 for n in range(180)]
    talk.at_window[2] = ["BYIELD 1"]
    talk.say(gen(long, 5))
    talk.at_window = {}
    assert talk.ask([41, 42], 5) == answer([41, 42], 5, eos=())
    assert talk.ask(long, 5) == answer(long, 5, eos=())
    assert talk.resumed == 40


@pytest.mark.parametrize("window", [1, 5])
def test_a_lane_that_decodes_does_not_give_way(window: int) -> None:
    """[Its answer ends, and waits as a read would.]"""
    talk = Talk(slots=2, chunk=200, eos_ids=())
    talk.at_window[window] = ["BYIELD 1"]
    prompt = [3] * 100
    assert talk.ask(prompt, 9) == answer(prompt, 9, eos=())
    assert talk.done.finish == "length"


# ------------------------------------------------------------------------------------------- what others are told


def test_the_scheduler_hears_of_every_lane_that_left() -> None:
    """Its statistics of a lane would stay for ever. [Some ways to end are not told, or told twice.]"""
    talk = Talk(context=600, pool=512, slots=3, lanes=2, chunk=50, eos_ids=(), drafts=2, lookup=3)
    heard: list[int] = []
    seen: set[int] = set()
    leave, window = talk.engine.scheduler.leave, talk.engine.scheduler.window
    talk.engine.scheduler.leave = lambda lane: (heard.append(lane), leave(lane))[1]
    talk.engine.scheduler.window = lambda demands: (seen.update(d.lane for d in demands), window(demands))[1]
    talk.at_window = {2: ["BYIELD 1"], 9: ["STOP"], 30: ["BSTOP 2"]}
    lines = talk.say(
        bgen(1, [3] * 200, 5), gen([4, 5], 50), bgen(2, [6, 7], 300), gen([NANS, 1], 4), gen([RAISES], 4),
        bgen(0, [8] * 99, 500),
    )  # fmt: skip
    finishes = {fields[4] for fields in words(lines, "DONE")} | {fields[2] for fields in words(lines, "BDONE")}
    assert finishes == {"cancel", "length", "pool"}
    assert len(words(lines, "ERR")) == 2
    assert len(words(lines, "YIELDED")) == 1
    assert sorted(heard) == sorted(seen)
    assert len(heard) == 6


def test_a_draft_behind_the_end_of_an_answer_was_not_refused() -> None:
    """Answers end among drafts that are never wrong. [A lane that ended counts as a refusal; no draft ever does.]"""
    prompts = [[7, n % 40, n // 40] for n in range(1600)]
    ending = [prompt for prompt in prompts if len(answer(prompt, 6)) in (2, 3) and answer(prompt, 6)[-1] == EOS][:40]
    for misses in (3, 1 << 30):
        talk = Talk(drafts=4, chunk=64)
        talk.model.misses = misses
        verdicts = verdicts_of(talk)
        for prompt in ending:
            assert talk.ask(prompt, 40) == answer(prompt, 40)
        assert len(verdicts) >= len(ending) // 2
        assert any(verdict.refused for verdict in verdicts) == (misses == 3)


def test_pool_lines_come_with_every_change_and_with_nothing_else() -> None:
    """[A line where nothing changed; no line where a chunk went from one conversation to another and none is free.]"""
    talk = Talk(context=1024, pool=1024, slots=2, chunk=512, eos_ids=(), tell_pool=True)
    lines = talk.say(bgen(0, [3] * 20, 5), bgen(1, [4] * 300, 150), gen([5, 6], 3, "ckpt=0"), gen([5, 6], 3, "ckpt=0"))
    lines += talk.say(bgen(1, [6] * 100, 700))
    told = words(lines, "POOL")
    assert all(one != other for one, other in pairwise(told))
    last = max(at for at, line in enumerate(lines) if line.startswith("POOL"))
    assert lines[last] == "POOL 1024 0 0 0,1024"
    assert len(words(lines[last:], "BT")) == 700 - (769 - 100 + 1), "after the window that filled the last chunk"
