"""Marks in a prompt, and sizes of chunks and pools."""

import pytest

from strata.errors import UsageError
from strata.memory import Marking, Sizes, Why, marks, pool_tokens

TURN = 9
PROMPT = [TURN, *[1] * 99, TURN, *[2] * 49, TURN, *[3] * 10]  # system to 100, question to 150, answer opens


@pytest.mark.parametrize(
    ("what", "marking", "how", "wanted"),
    [
        ("the last turn", Marking(TURN, 0, 0), {}, {150: Why.TURN}),
        ("the end of the system prompt", Marking(TURN, 0, 100), {}, {100: Why.ROOT, 150: Why.TURN}),
        ("which has to be long enough", Marking(TURN, 0, 101), {}, {150: Why.TURN}),
        ("and read from the beginning", Marking(TURN, 0, 100), {"reused": 5}, {150: Why.TURN}),
        ("regular ones", Marking(TURN, 60, 0), {}, {60: Why.PERIODIC, 120: Why.PERIODIC, 150: Why.TURN}),
        ("behind what is reused", Marking(TURN, 60, 0), {"reused": 120}, {150: Why.TURN}),
        ("a pin lasts longest", Marking(TURN, 50, 0), {"pin": 150},
         {50: Why.PERIODIC, 100: Why.PERIODIC, 150: Why.PIN}),
        ("the whole prompt may be pinned", Marking(None, 0, 0), {"pin": 161}, {161: Why.PIN}),
        ("beyond it nothing", Marking(None, 0, 0), {"pin": 162}, {}),
        ("one-shot: the root", Marking(TURN, 60, 100), {"keep": False, "pin": 7}, {100: Why.ROOT}),
        ("where prompts part", Marking(None, 0, 0), {"shared": 120}, {}),
        ("a vocabulary without turns", Marking(None, 0, 1), {}, {}),
    ],
)  # fmt: skip
def test_marks(what, marking, how, wanted):
    got = marks(PROMPT, how.pop("reused", 0), how.pop("pin", 0), marking, **how)
    assert got == wanted, what
    assert list(got) == sorted(got)


def test_a_state_is_kept_where_prompts_part_if_that_saves_enough():
    prompt = list(range(1000))
    marking = Marking(None, 0, 0)
    assert marks(prompt, 100, 0, marking, shared=356) == {356: Why.PERIODIC}
    assert marks(prompt, 101, 0, marking, shared=356) == {}
    assert marks(prompt, 100, 0, marking, shared=356, keep=False) == {}


def test_one_turn_alone_has_no_system_prompt_to_share():
    assert marks([TURN, *[1] * 50], 0, 0, Marking(TURN, 0, 10)) == {}


SIZES = Sizes(chunk=256 * 100, state=1)


def test_the_pool_is_what_was_asked_for_or_what_the_budget_holds():
    assert pool_tokens(SIZES, 0, 4096, asked=5000) == 5000
    assert pool_tokens(SIZES, 1_000_000, 4096) == 39 * 256
    assert pool_tokens(SIZES, 10**12, 4096) == 32 * 4096
    with pytest.raises(UsageError, match=r"--kv-pool-tokens 4000 is less than .* 4096 tokens.*--max-context"):
        pool_tokens(SIZES, 0, 4096, asked=4000)
    with pytest.raises(UsageError, match=r"hold the keys and values of 3840 tokens.*use --max-context 3840"):
        pool_tokens(SIZES, 15 * 25_600, 4096)
