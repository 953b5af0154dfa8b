"""The tree of prefixes against a list of (tokens, record): lookups, worth, victims, after every step."""

import os
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.memory.tree import SCALE, Tree


class NaiveTree:
    """Every question is answered by looking at all records."""

    def __init__(self):
        self.records, self.age, self.number = [], 0, 0

    def begins(self, tokens):
        found = [r for r in self.records if tokens[: len(r["tokens"])] == r["tokens"]]
        return sorted(found, key=lambda r: len(r["tokens"]))

    def cost(self, record):
        shorter = [len(r["tokens"]) for r in self.begins(record["tokens"]) if r is not record]
        return len(record["tokens"]) - max(shorter, default=0)

    def worth(self, record):
        return record["age"] + Fraction(record["uses"] * self.cost(record) * SCALE, record["size"]).__floor__()

    def victim(self):
        key = [(r["pinned"], self.worth(r), r["number"]) for r in self.records]
        return self.records[key.index(min(key))] if key else None


TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=7)
OPERATIONS = st.one_of(
    st.tuples(st.just("insert"), TOKENS, st.integers(1, 50), st.booleans()),
    st.tuples(st.just("touch"), TOKENS, st.just(0), st.just(False)),
    st.tuples(st.just("evict"), TOKENS, st.just(0), st.just(False)),
    st.tuples(st.just("remove"), TOKENS, st.just(0), st.just(False)),
)


@given(st.lists(OPERATIONS, max_size=40), TOKENS)
@settings(max_examples=300, deadline=None)
def test_the_tree_equals_a_list(operations, asked):
    tree, naive = Tree(), NaiveTree()
    for name, tokens, size, pinned in operations:
        record = next((r for r in naive.records if r["tokens"] == tokens), None)
        node = tree.at(tokens)
        assert (node is None) == (record is None)
        if name == "insert" and record is None:
            naive.number += 1
            record = {"tokens": tokens, "uses": 1, "age": naive.age, "size": size, "pinned": pinned}
            naive.records.append(record | {"number": naive.number})
            tree.insert(tokens, naive.number, size=size, pinned=pinned)
        elif name == "touch" and record is not None:
            record["uses"], record["age"] = record["uses"] + 1, naive.age
            tree.touch(node)
        elif name == "remove" and record is not None:
            naive.records.remove(record)
            assert tree.remove(node) == record["number"]
        elif name == "evict":
            victim, found = naive.victim(), tree.victim()
            assert (victim is None) == (found is None)
            if victim is not None:
                assert found.tokens().tolist() == victim["tokens"]
                naive.age = naive.age if victim["pinned"] else max(naive.age, naive.worth(victim))
                naive.records.remove(victim)
                tree.passed(found)
                assert tree.remove(found) == victim["number"]
        tree.check()
        assert len(tree) == len(naive.records)
        for prompt in (asked, tokens, [*tokens, 1], [*tokens, *asked]):
            common = [os.path.commonprefix([prompt, r["tokens"]]) for r in naive.records]
            assert tree.common(prompt) == max(map(len, common), default=0)
            begins = naive.begins(prompt)
            assert [n.tokens().tolist() for n in tree.path(prompt)] == [r["tokens"] for r in begins]
            proper = [r["tokens"] for r in begins if len(r["tokens"]) < len(prompt)]
            deepest = tree.deepest(prompt)
            assert (None if deepest is None else deepest.tokens().tolist()) == (proper[-1] if proper else None)
        for r in naive.records:
            at = tree.at(r["tokens"])
            assert (at.cost, at.worth, at.value) == (naive.cost(r), naive.worth(r), r["number"])


def test_one_token_of_the_prompt_at_least_is_left_to_compute():
    tree = Tree()
    tree.insert([1, 2, 3], "whole", size=1)
    tree.insert([1, 2], "less", size=1)
    assert tree.deepest([1, 2, 3]).value == "less"
    assert tree.deepest([1, 2, 3, 4]).value == "whole"
    assert tree.deepest([1]) is None


def test_what_a_checkpoint_is_worth_grows_when_the_one_above_goes():
    tree = Tree()
    low = tree.insert(list(range(100)), "low", size=10)
    high = tree.insert(list(range(110)), "high", size=10)
    assert (low.cost, high.cost) == (100, 10)
    assert tree.victim() is high
    tree.remove(low)
    assert high.cost == 110


def test_pins_go_last_and_uses_age():
    tree = Tree()
    pin = tree.insert([1], "pin", size=1000, pinned=True)
    old = tree.insert([2] * 10, "old", size=10)
    for _ in range(20):
        tree.touch(old)
    gone = 0
    while old.value is not None:
        gone += 1
        assert gone < 100, "a state that was used often once is kept for ever"
        tree.insert([3, gone] * 5, "new", size=10)
        victim = tree.victim()
        assert victim is not pin
        tree.passed(victim)
        tree.remove(victim)
    assert gone > 5, "often used, so longer kept"


def test_mistakes_of_the_caller_are_refused():
    tree = Tree()
    node = tree.insert([1], "x", size=1)
    with pytest.raises(ValueError, match="something is kept"):
        tree.insert([1], "y", size=1)
    with pytest.raises(ValueError, match="no tokens"):
        tree.insert([], "y", size=1)
    tree.remove(node)
    with pytest.raises(ValueError, match="nothing is kept"):
        tree.remove(node)


def test_long_prompts_are_compared_as_slices():
    tree, tokens = Tree(), list(range(100_000))
    tree.insert(tokens[:60_000], "a", size=1)
    tree.insert([*tokens[:50_000], -1], "b", size=1)
    tree.insert(tokens[:40_000], "c", size=1)
    tree.check()
    assert tree.deepest(tokens).value == "a"
    assert tree.deepest(tokens[:55_000]).value == "c"
    assert tree.deepest([*tokens[:50_000], -1, 7]).value == "b"
