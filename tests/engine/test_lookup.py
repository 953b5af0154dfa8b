"""The index of a conversation's history against a search of the whole history, and against one made afresh."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.engine.lookup import CANDIDATES, LONGEST_COMPARED, NOTHING, Lookup, Proposal


def searched(tokens: list[int], depth: int, shortest: int) -> Proposal:
    """Every earlier end of the last n-gram, the latest first; the longest match wins."""
    end, best, longest = len(tokens), 0, 0
    ends = [at for at in range(end - 1, shortest - 1, -1) if tokens[at - shortest : at] == tokens[end - shortest :]]
    for at in ends[:CANDIDATES] if end >= shortest else []:
        matched = next((n for n in range(at) if tokens[at - 1 - n] != tokens[end - 1 - n]), at)
        if min(matched, LONGEST_COMPARED) > longest:
            best, longest = at, min(matched, LONGEST_COMPARED)
    if not best or depth < 1:
        return NOTHING
    text = list(tokens)
    for _ in range(depth):
        text.append(text[len(text) - (end - best)])
    return Proposal(tuple(text[end:]), longest)


@given(st.lists(st.integers(0, 3), max_size=70), st.integers(0, 9), st.integers(1, 4))
def test_drafts_equal_those_of_a_search(tokens: list[int], depth: int, shortest: int) -> None:
    """[The first match instead of the longest; the earliest of equals; a draft that stops at the end of history; the
    last n-gram finds itself.]"""
    assert Lookup(tokens, shortest).draft(depth) == searched(tokens, depth, shortest)


@given(st.lists(st.one_of(st.integers(0, 2), st.integers(-30, -1)), max_size=120))
def test_a_truncated_history_is_as_if_never_longer(steps: list[int]) -> None:
    """Appends and removals in any order. [A removal that deletes the n-gram's earlier end too, or leaves its own.]"""
    lookup, tokens = Lookup(shortest=2), []
    for step in steps:
        if step >= 0:
            lookup.append(step)
            tokens.append(step)
        else:
            lookup.truncate(len(tokens) + step)
            tokens = tokens[: max(0, len(tokens) + step)]
        assert len(lookup) == len(tokens)
        assert lookup.draft(4) == Lookup(tokens, 2).draft(4) == searched(tokens, 4, 2)


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40))
def test_following_another_history_is_starting_with_it(first: list[int], second: list[int]) -> None:
    lookup = Lookup(first)
    lookup.follow(second)
    assert len(lookup) == len(second)
    assert lookup.draft(5) == Lookup(second).draft(5)


def test_large_token_ids_are_told_apart() -> None:
    """[Keys of fewer bits than a token has.]"""
    big = 2**31 - 1
    assert Lookup([1, 2, 3, 9, 0, 2 + 2**16, 3]).draft(1) == NOTHING
    assert Lookup([1, 2, 3, 9, big, 2, 3]).draft(1) == NOTHING
    assert Lookup([big, big, big - 1, 5, big, big, big - 1]).draft(2) == Proposal((5, big), 3)


def test_a_repeated_file_is_drafted_whole() -> None:
    rng = random.Random(4)
    passage = [rng.randrange(50_000) for _ in range(400)]
    lookup = Lookup([*passage, *(rng.randrange(50_000) for _ in range(100)), *passage[:40]])
    assert lookup.draft(16) == Proposal(tuple(passage[40:56]), LONGEST_COMPARED)
    assert lookup.draft(0) == NOTHING


def test_the_shortest_match_has_a_token() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Lookup(shortest=0)
