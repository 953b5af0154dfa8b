"""The life of one request, in golden transcripts and against `engine_fakes.answer`, which knows no windows."""

import pytest
from engine_fakes import EOS, NANS, RAISES, TURN, FakeState, answer
from engine_talk import Talk, gen

from strata.arithmetic.sampling import Sampling, sample
from strata.engine.lane import Ends, Lane
from strata.engine.protocol import Gen
from strata.memory import MAIN, Admission, Marking, packed

PROMPT = [TURN, 3, 1, 4, 1, 5, TURN, 9, 2, 6]
# The first prompt of this form whose greedy answer reaches the end token within a few tokens.
ENDING = next([7, n % 40, n // 40] for n in range(1600) if EOS in answer([7, n % 40, n // 40], 8)[1:])


def test_transcript_of_a_request() -> None:
    a, b, c = answer(PROMPT, 3)
    assert Talk(chunk=4).say(gen(PROMPT, 3)) == [
        "PP 4 10 250.0 16.0",
        "PP 6 10 500.0 12.0",  # a window ends where the last turn opens
        "PP 10 10 750.0 13.3",
        f"T {a}",
        f"T {b}",
        f"T {c}",
        "DONE 3 10 750.0 500.0 length 0 0 0 0 0 0 0 0.0 10 0",
    ]


def test_transcript_of_the_next_request_of_a_conversation() -> None:
    talk = Talk(chunk=8)
    prompt = [*PROMPT, *talk.ask(PROMPT, 3), TURN, 8]
    (token,) = answer(prompt, 1)
    assert talk.say(gen(prompt, 1)) == [
        "RESUME 12",  # the last token drawn was never computed
        "REUSED 12",
        "PP 13 15 250.0 4.0",
        "PP 15 15 500.0 6.0",
        f"T {token}",
        "DONE 1 15 500.0 0.0 length 0 0 12 0 0 0 0 0.0 3 0",
    ]


def test_the_end_token_is_told_and_counted() -> None:
    talk = Talk()
    expected = answer(ENDING, 9)
    assert talk.ask(ENDING, 9) == expected
    assert expected[-1] == EOS
    assert (talk.done.finish, talk.done.generated) == ("stop", len(expected))
    assert talk.ask(ENDING, len(expected)) == expected
    assert talk.done.finish == "stop", "an end token on the last place counts as stop"


def test_without_end_tokens_an_answer_goes_on() -> None:
    talk = Talk(eos_ids=())
    assert talk.ask(ENDING, 20) == answer(ENDING, 20, eos=())
    assert talk.done.finish == "length"


def test_stop_while_the_prompt_is_read() -> None:
    talk = Talk(chunk=3, checkpoints=0)
    talk.at_window[2] = ["STOP"]
    assert talk.say(gen(PROMPT[1:6])) == [
        "PP 3 5 250.0 12.0",
        "PP 5 5 500.0 10.0",
        f"T {answer(PROMPT[1:6], 1)[0]}",  # the window in flight read to the end
        "DONE 1 5 500.0 0.0 cancel 0 0 0 0 0 0 0 0.0 5 0",
    ]
    talk.at_window = {1: ["STOP"]}
    assert talk.say(gen([*PROMPT, 1, 1])) == ["PP 3 12 250.0 12.0", "DONE 0 12 250.0 0.0 cancel 0 0 0 0 0 0 0 0.0 3 0"]
    talk.at_window = {}
    assert talk.ask([*PROMPT, 1, 1], 5) == answer([*PROMPT, 1, 1], 5), "what was read before STOP is continued"
    assert talk.resumed == 3


def test_stop_while_decoding() -> None:
    talk = Talk(chunk=16, marking=Marking(None, 0, 0))
    talk.at_window[3] = ["STOP"]
    assert talk.ask(PROMPT, 40) == answer(PROMPT, 40)[:3]
    assert (talk.done.finish, talk.done.generated) == ("cancel", 3)
    emitted = answer(PROMPT, 40)[:3]
    talk.at_window = {}
    assert talk.ask([*PROMPT, *emitted], 37) == answer(PROMPT, 40)[3:], "a stopped answer goes on as if it had not been"


def test_stop_before_the_first_window() -> None:
    assert Talk().say(gen(PROMPT), "STOP") == ["DONE 0 10 0.0 0.0 cancel 0 0 0 0 0 0 0 0.0 0 0"]


def test_stop_between_requests_is_stale() -> None:
    talk = Talk()
    talk.say("STOP")
    assert talk.ask(PROMPT, 4) == answer(PROMPT, 4)
    talk.say("STOP", "STOP")
    assert talk.ask(PROMPT, 4) == answer(PROMPT, 4)


def test_stop_belongs_to_the_request_in_progress_and_not_to_the_next() -> None:
    talk = Talk(chunk=32, marking=Marking(None, 0, 0))
    talk.at_window[2] = ["STOP"]
    lines = talk.say(gen(PROMPT, 30), gen(ENDING, 9))
    assert [line.split()[5] for line in lines if line.startswith("DONE")] == ["cancel", "stop"]


def test_an_interrupt_drops_what_waits() -> None:
    talk = Talk(chunk=32, marking=Marking(None, 0, 0))
    talk.inbox.put(gen(PROMPT))
    talk.inbox.put(gen(ENDING))
    talk.inbox.interrupt()
    assert talk.say() == []


def test_an_error_line_waits_for_its_turn() -> None:
    talk = Talk(chunk=32, marking=Marking(None, 0, 0))
    talk.at_window[1] = ["nonsense"]
    assert [line.split()[0] for line in talk.say(gen(PROMPT, 3))] == ["PP", "T", "T", "T", "DONE"]
    assert talk.say() == ["ERR expected: GEN <max_new> ..."]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (gen(PROMPT, 0), "bad request: max_new must be at least 1, not 0"),
        (gen(PROMPT, -3), "bad request: max_new must be at least 1, not -3"),
        (gen([1] * 20, 5), "prompt (20 tokens) + max_new (5) exceeds the context (32)"),
        (gen([1] * 24, 1), "prompt (24 tokens) + max_new (1) exceeds the context (32)"),
        (gen([1, 64, 2], 5), "bad request: token id 64 is outside the vocabulary of 64"),
    ],
)
def test_requests_that_are_refused(line: str, reason: str) -> None:
    talk = Talk(context=32)
    assert talk.say(line) == [f"ERR {reason}"]
    assert talk.ask([1] * 20, 4) == answer([1] * 20, 4), "the largest request that fits is served"


def test_neutral_penalties_and_moot_keys_change_nothing() -> None:
    assert Talk().ask(PROMPT, 3, "penalty_repeat=1.0 penalty_last_n=64 cvec=0 pcie_frac=0.2") == answer(PROMPT, 3)


def lane_of(request: Gen, ends: Ends) -> Lane:
    return Lane(1, request, Admission(FakeState(), 0, 0, MAIN, None, packed(request.ids)), ends, seed=1)


def test_a_prompt_of_p_tokens_draws_c_minus_p_plus_1_in_a_context_of_c() -> None:
    for prompt in range(1, 12):
        lane = lane_of(Gen(10**6, (1,) * prompt), Ends(12, frozenset()))
        assert lane.room == 12 - prompt
        while lane.finish is None:
            lane.accept(1, stopped=False)
        assert (lane.finish, lane.generated, lane.room) == ("length", 12 - prompt + 1, 0)


def test_finishes_in_their_order() -> None:
    def finish(token: int, max_new: int, stopped: bool) -> str | None:
        lane = lane_of(Gen(max_new, (1,)), Ends(99, frozenset([EOS])))
        lane.accept(token, stopped=stopped)
        return lane.finish

    assert finish(EOS, 1, True) == "stop"
    assert finish(2, 1, True) == "cancel"
    assert finish(2, 1, False) == "length"
    assert finish(2, 2, False) is None


def test_every_chunk_size_gives_the_same_tokens_greedy_and_drawn() -> None:
    prompt = (PROMPT * 4)[:37]
    sampling = Sampling(0.9, 0.95, 40, 0.01, 7)
    drawn = answer(prompt, 24, draw=lambda logits, position: sample(logits, sampling, choice=0, position=position))
    assert drawn != answer(prompt, 24)
    for chunk in [*range(1, 38), None]:
        assert Talk(chunk=chunk).ask(prompt, 24) == answer(prompt, 24)
        assert Talk(chunk=chunk).ask(prompt, 24, "temperature=0.9 top_p=0.95 top_k=40 min_p=0.01 seed=7") == drawn


def test_a_drawn_answer_goes_on_after_a_resume_as_without() -> None:
    keys = "temperature=1.3 seed=11"
    whole = Talk().ask(PROMPT, 20, keys)
    talk = Talk()
    begun = talk.ask(PROMPT, 9, keys)
    assert begun + talk.ask(PROMPT + begun, 11, keys) == whole
    assert talk.resumed == len(PROMPT) + 8


def test_an_absent_seed_is_taken_from_the_clock() -> None:
    answers = {tuple(Talk().ask(PROMPT, 30, "temperature=2 top_k=0")) for _ in range(4)}
    assert len(answers) == 4, "4 seeds give the same 30 tokens with a probability under 1e-20"


@pytest.mark.parametrize(
    ("token", "reason"), [(RAISES, "internal error: ValueError('the fake"), (NANS, "The model gave a NaN logit")]
)
def test_a_failed_window_ends_its_request_only(token: int, reason: str) -> None:
    talk = Talk(chunk=4)
    talk.ask(PROMPT, 3)
    lines = talk.say(gen([*PROMPT, TURN, token, TURN, 4], 5))
    assert lines[-1].startswith(f"ERR {reason}")
    assert not [line for line in lines if line.startswith("DONE")]
    assert talk.ask(PROMPT, 6) == answer(PROMPT, 6)
    assert talk.resumed == 6, "what the failed request touched is not kept, what was kept before is"


def test_an_adapted_chunk_follows_the_speed_of_windows() -> None:
    talk = Talk(context=4000, chunk=None, marking=Marking(None, 0, 0))
    talk.ask([1] * 1000, 1)
    assert [rows for _, rows in talk.model.windows] == [32, 128, 512, 328], "windows of 0.25 s may grow"
