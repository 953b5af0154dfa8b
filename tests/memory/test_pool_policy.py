"""The policy when the KV pool is full, rule by rule (`rule` quotes it), and against a search over all orders."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.errors import RequestError
from strata.memory.policy import (
    Asking,
    End,
    GiveWay,
    Idle,
    PoolFull,
    Rank,
    Refuse,
    Situation,
    Skip,
    decide,
    refusal,
)

FULL = "KV pool full: the decoding lanes hold all 25600 cells of --kv-pool-tokens; try again when one finishes"
REFUSED = [Refuse(FULL)]


@dataclass
class Case:
    """Idle conversations as (name, rank, used, place, chunks); `lanes`: chunks that running lanes hold."""

    rule: str
    need: int
    idle: list[tuple[int, Rank, int, int, list[int]]]
    wanted: list[object]
    free: int = 0
    asking: Asking = Asking.ADMISSION
    lanes: list[int] = field(default_factory=list)


EMPTY, CACHED, PINNED, GAVE_WAY = Rank.EMPTY, Rank.CACHED, Rank.PINNED, Rank.GAVE_WAY
CASES = [
    Case("what is free is taken first: nobody is asked", 3, [(1, CACHED, 1, 0, [0, 1, 2])], [], free=3),
    Case("an idle slot's cached conversation gives way first, then a new request is refused",
         2, [(1, CACHED, 1, 0, [0, 1])], [GiveWay(1)]),
    Case("rank 0 holding nothing, 1 cached conversation, 2 a read that gave way (lowest rank first)",
         2, [(1, GAVE_WAY, 1, 0, [0, 1]), (2, CACHED, 2, 1, [2, 3]), (3, EMPTY, 3, 2, [4, 5])], [GiveWay(3)]),
    Case("a prompt read that gave way gives way last instead of never",
         4, [(1, GAVE_WAY, 1, 0, [0, 1]), (2, CACHED, 2, 1, [2, 3])], [GiveWay(2), GiveWay(1)]),
    Case("a pinned prefix stays longer than a cached conversation, a read that gave way longer than it",
         4, [(1, GAVE_WAY, 1, 0, [0, 1]), (2, CACHED, 9, 1, [2, 3]), (3, PINNED, 1, 1, [4, 5])],
         [GiveWay(2), GiveWay(3)]),
    Case("within a rank the longest unused",
         2, [(1, CACHED, 5, 0, [0, 1]), (2, CACHED, 4, 1, [2, 3]), (3, CACHED, 6, 2, [4, 5])], [GiveWay(2)]),
    Case("then the lower slot", 2, [(1, CACHED, 5, 1, [0, 1]), (2, CACHED, 5, 0, [2, 3])], [GiveWay(2)]),
    Case("as many as it takes, no more",
         3, [(1, CACHED, 1, 0, [0, 1]), (2, CACHED, 2, 1, [2, 3]), (3, CACHED, 3, 2, [4, 5])],
         [GiveWay(1), GiveWay(2)]),
    Case("an empty slot gives way first though it gives nothing",
         2, [(1, EMPTY, 9, 1, []), (2, CACHED, 1, 0, [0, 1])], [GiveWay(1), GiveWay(2)]),
    Case("nothing is given back when all the idle slots together would not cover the request",
         5, [(1, CACHED, 1, 0, [0, 1]), (2, CACHED, 2, 1, [2, 3])], REFUSED),
    Case("what is free counts", 5, [(1, CACHED, 1, 0, [0, 1]), (2, CACHED, 2, 1, [2, 3])],
         [GiveWay(1), GiveWay(2)], free=1),
    Case("a decoding lane has chunks of its own: only idle slots are asked", 1, [], REFUSED, lanes=[0, 1, 2]),
    Case("a decoding lane that cannot grow ends with finish pool", 1, [], [End("pool")], asking=Asking.GROWTH),
    Case("idle ones give way to a decoding lane too", 1, [(1, CACHED, 1, 0, [0])], [GiveWay(1)], asking=Asking.GROWTH),
    Case("nobody is asked for a decoding lane in vain", 2, [(1, CACHED, 1, 0, [0])], [End("pool")],
         asking=Asking.GROWTH),
    Case("RESTORE reserves the file's cells first and refuses, retryable, when the lanes hold the pool",
         1, [], REFUSED, asking=Asking.RESTORE),
    Case("a checkpoint that finds no room is not made", 1, [], [Skip()], asking=Asking.CHECKPOINT),
    Case("a chunk that a running lane shares does not come back",
         2, [(1, CACHED, 1, 0, [0, 1]), (2, CACHED, 2, 1, [2, 3])], [GiveWay(1), GiveWay(2)], lanes=[0]),
    Case("one that would give back nothing is not asked",
         2, [(1, CACHED, 1, 0, [0, 1]), (2, CACHED, 2, 1, [2, 3])], [GiveWay(2)], lanes=[0, 1]),
    Case("a chunk that two idle ones share comes back with the second",
         1, [(1, CACHED, 1, 0, [0]), (2, CACHED, 2, 1, [0])], [GiveWay(1), GiveWay(2)]),
]  # fmt: skip


def situation(case: Case) -> Situation:
    references = [0] * 100
    tables = {name: chunks for name, _, _, _, chunks in case.idle} | {-1: case.lanes}
    for chunks in tables.values():
        for chunk in chunks:
            references[chunk] += 1
    idle = [Idle(name, rank, used, place, (name,)) for name, rank, used, place, _ in case.idle]
    return Situation(case.asking, case.need, case.free, 25600, idle, tables, references, {})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_rule(case: Case) -> None:
    assert decide(situation(case)) == case.wanted


def test_a_state_that_two_conversations_own_comes_back_when_both_gave_way() -> None:
    idle = [Idle(1, CACHED, 1, 0, (10, 11)), Idle(2, CACHED, 2, 1, (10, 12))]
    tables = {10: [0, 1], 11: [0, 1, 2], 12: [0, 1, 3]}
    references = [3, 3, 1, 1]

    def decided(need: int) -> list[object]:
        return decide(Situation(Asking.ADMISSION, need, 0, 25600, idle, tables, references, {10: 2, 11: 1, 12: 1}))

    assert decided(1) == [GiveWay(1)]
    assert decided(2) == decided(4) == [GiveWay(1), GiveWay(2)]
    assert decided(5) == REFUSED


def test_the_refusal_is_what_servers_look_for() -> None:
    assert issubclass(PoolFull, RequestError)
    assert refusal(524288).startswith("KV pool full")
    assert "524288 cells" in refusal(524288)


CONVERSATIONS = st.lists(
    st.tuples(
        st.sampled_from(list(Rank)), st.integers(0, 3), st.integers(0, 3), st.lists(st.integers(0, 7), unique=True)
    ),
    max_size=5,
)


@given(CONVERSATIONS, st.lists(st.integers(0, 7), unique=True), st.integers(1, 9), st.integers(0, 4))
@settings(max_examples=400, deadline=None)
def test_the_decision_against_counting_chunks(conversations, lanes, need, free) -> None:
    idle = [(name, rank, used, place, chunks) for name, (rank, used, place, chunks) in enumerate(conversations)]
    case = Case("", need, idle, [], free=free, lanes=lanes)
    got = decide(situation(case))

    def back(names) -> int:
        """Chunks that nobody holds any more when these gave way."""
        left = {chunk for name, *_, chunks in idle if name not in names for chunk in chunks} | set(lanes)
        return len({chunk for *_, chunks in idle for chunk in chunks} | set(lanes)) - len(left)

    order = [name for name, rank, used, place, _ in sorted(idle, key=lambda one: (one[1], one[2], one[3], one[0]))]
    if free >= need:
        assert got == []
    elif free + back(order) < need:
        assert got == REFUSED
    else:
        names = [action.name for action in got]
        assert free + back(names) >= need
        shortest = next(order[:n] for n in range(len(order) + 1) if free + back(order[:n]) >= need)
        assert names == [name for name in shortest if name in names], "in order, and nobody beyond the first that cover"
        for name in set(shortest) - set(names):
            assert back(shortest) == back([other for other in shortest if other != name]), "left out: it gave nothing"
