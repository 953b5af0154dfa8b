"""What is kept between requests: where it resumes, what is dropped, and that a resumed answer equals a fresh one."""

from engine_fakes import TURN, FakeModel, FakeState, answer
from engine_talk import Talk
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.engine.conversation import Conversation

SYSTEM = [TURN, 11, 12, 13]
QUESTION = [TURN, 21, 22]


def state(tokens: list[int]) -> FakeState:
    return FakeState(list(tokens))


def test_the_longest_common_prefix_wins_and_one_row_is_left_to_compute() -> None:
    kept = Conversation(6)
    for length in (2, 4, 6):
        kept.checkpoint(state([1, 2, 3, 4, 5, 6][:length]))
    kept.keep(state([1, 2, 3, 4, 5, 6, 7]))
    assert kept.peek([1, 2, 3, 4, 5, 6, 7, 8]).length == 7
    assert kept.peek([1, 2, 3, 4, 5, 6, 7]).length == 6, "a prompt that is held whole needs its last row again"
    assert kept.peek([1, 2, 3, 4, 9, 9]).length == 4
    assert kept.peek([1, 9]) is None
    assert kept.lengths == ([2, 4, 6], 7), "a one-shot request changes nothing"


def test_taking_drops_what_is_off_the_path_or_past_it() -> None:
    kept = Conversation(6)
    for length in (2, 4, 6):
        kept.checkpoint(state([1, 2, 3, 4, 5, 6][:length]))
    kept.keep(state([1, 2, 3, 4, 5, 6, 7]))
    taken = kept.take([1, 2, 3, 4, 9, 9])
    assert taken.tokens == [1, 2, 3, 4]
    assert kept.lengths == ([2, 4], 0)
    taken.tokens.append(9)
    assert kept.peek([1, 2, 3, 4, 5]).tokens == [1, 2, 3, 4], "the checkpoint is a copy"
    assert kept.take([8, 8]) is None
    assert kept.lengths == ([], 0), "a replaced conversation is not kept"


def test_a_state_that_is_passed_on_is_not_kept_too() -> None:
    kept = Conversation(6)
    live = state([1, 2, 3])
    kept.keep(live)
    assert kept.take([1, 2, 3, 4]) is live
    assert kept.take([1, 2, 3, 4]) is None


def test_the_least_recently_used_checkpoint_gives_way_and_a_pin_does_not() -> None:
    kept = Conversation(3)
    tokens = list(range(10))
    kept.checkpoint(state(tokens[:1]), pinned=True)
    for length in (2, 3, 4, 4):
        kept.checkpoint(state(tokens[:length]))
    assert kept.lengths[0] == [1, 2, 3, 4], "the same place is kept once"
    kept.checkpoint(state(tokens[:5]))
    assert kept.lengths[0] == [1, 3, 4, 5], "2 was the oldest"
    kept.take([*tokens[:3], 99])  # uses 3; 4 and 5 lie past it
    kept.checkpoint(state([*tokens[:3], 99]))
    kept.take([*tokens[:3], 98])  # uses 3 again
    kept.checkpoint(state([*tokens[:3], 98]))
    assert kept.lengths[0] == [1, 3, 4]


def test_what_a_request_resumed_from_was_used_last() -> None:
    kept = Conversation(2)
    kept.checkpoint(state([1]))
    kept.checkpoint(state([1, 2]))
    kept.checkpoint(state([1, 2, 3]))
    assert kept.lengths[0] == [2, 3]
    kept.take([1, 2, 3, 4])
    kept.checkpoint(state([1, 2, 3, 4]))
    assert kept.lengths[0] == [3, 4], "2 gave way, 3 had just been used"


def test_a_pin_of_another_conversation_goes_with_it() -> None:
    kept = Conversation(2)
    kept.checkpoint(state([1, 2]), pinned=True)
    assert kept.take([5, 6, 7]) is None
    assert kept.lengths == ([], 0)


def test_without_checkpoints_only_the_live_state_resumes() -> None:
    kept = Conversation(0)
    kept.checkpoint(state([1]))
    kept.checkpoint(state([1]), pinned=True)
    assert kept.lengths == ([], 0)
    kept.keep(state([1, 2]))
    assert kept.peek([1, 2, 3]).length == 2


def test_history_without_the_replys_thinking_resumes_at_the_turn() -> None:
    talk = Talk()
    prompt = SYSTEM + QUESTION + [TURN, 30]
    reply = talk.ask(prompt, 6)
    talk.ask(SYSTEM + QUESTION + [TURN, *reply[3:], *QUESTION, TURN, 30], 4)
    assert talk.resumed == len(SYSTEM + QUESTION)
    talk.ask(SYSTEM + QUESTION + [TURN, 44], 4)
    assert talk.resumed == len(SYSTEM + QUESTION), "an earlier turn is still there"


def test_a_pinned_prefix_outlives_the_turns_after_it() -> None:
    talk = Talk(checkpoints=1)
    prompt = SYSTEM + QUESTION
    talk.ask(prompt + [TURN, 30], 4, f"pin={len(SYSTEM) - 1}")
    for n in range(3):
        prompt = [*prompt, TURN, 31 + n]
        talk.ask(prompt, 2)
    talk.ask(SYSTEM + [TURN, 9, 9], 4)
    assert talk.resumed == len(SYSTEM) - 1


def test_a_pin_may_stand_at_the_end_of_its_prompt() -> None:
    talk = Talk(turn_id=None)
    talk.ask([1, 2, 3], 4, "pin=3")
    assert talk.ask([1, 2, 3, 9], 4, "pin=80") == answer([1, 2, 3, 9], 4)
    assert talk.resumed == 3


def test_a_one_shot_request_resumes_but_evicts_nothing() -> None:
    talk = Talk()
    prompt = SYSTEM + QUESTION + [TURN, 30]
    reply = talk.ask(prompt, 5)
    before = talk.engine.conversation.lengths
    assert talk.ask(SYSTEM + QUESTION + [TURN, 31, 32], 4, "ckpt=0") == answer(SYSTEM + QUESTION + [TURN, 31, 32], 4)
    assert talk.resumed == len(SYSTEM + QUESTION)
    talk.ask([1, 2, TURN, 3], 4, "ckpt=0")
    assert talk.engine.conversation.lengths == before
    talk.ask([*prompt, *reply, TURN, 5], 4)
    assert talk.resumed == len(prompt) + 4


def test_a_replaced_conversation_is_read_again() -> None:
    talk = Talk()
    talk.ask(SYSTEM + QUESTION + [TURN, 30], 5)
    talk.ask([1, 2, 3], 5)
    talk.ask(SYSTEM + QUESTION + [TURN, 30], 5)
    assert talk.resumed == 0
    assert talk.done.prompt_read == len(SYSTEM + QUESTION) + 2


REQUESTS = st.lists(
    st.tuples(
        st.integers(0, 60),  # how much of the history the client sends again
        st.lists(st.sampled_from([1, 2, 3, TURN]), min_size=1, max_size=9),  # and what it adds
        st.integers(1, 12),
        st.sampled_from(["", "", "", "ckpt=0", "pin=5"]),
        st.sampled_from([0, 0, 0, 1, 2, 3]),  # STOP in this window
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(REQUESTS, st.integers(1, 9), st.integers(0, 3))
def test_any_history_of_requests_answers_as_a_fresh_engine(requests: list, chunk: int, checkpoints: int) -> None:
    talk = Talk(chunk=chunk, checkpoints=checkpoints, context=2000)
    history: list[int] = []
    for kept, added, max_new, keys, stop in requests:
        prompt = history[:kept] + added
        talk.at_window = {stop: ["STOP"]}
        tokens = talk.ask(prompt, max_new, keys)
        expected = answer(prompt, max_new)
        assert tokens == expected[: len(tokens)]
        assert len(tokens) == len(expected) or talk.done.finish == "cancel"
        history = prompt + tokens
        lengths, live = talk.engine.conversation.lengths
        assert len(lengths) <= (checkpoints + 1 if checkpoints else 0)
        assert all(length <= len(prompt) for length in lengths) or keys == "ckpt=0"


def test_the_fake_model_would_show_a_mixed_up_state() -> None:
    model = FakeModel()
    assert answer([1, 2, 3], 6) != answer([2, 1, 3], 6), "the order counts"
    assert answer([1, *[5] * 30], 3) != answer([2, *[5] * 30], 3), "and so does the remote past"
    assert model.new_state().length == 0
