"""The pool's books against a naive model: a dict of what each position of each holder lies in."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.errors import UsageError
from strata.memory.pool import CHUNK, Pool, chunks


class NaivePool:
    """Holders as lists of labels, one a chunk; a label stands for memory and is free when no list has it."""

    def __init__(self, capacity):
        self.capacity, self.lists, self.fresh = capacity, {}, 0

    @property
    def free(self):
        return self.capacity - len({label for held in self.lists.values() for label in held})

    def label(self):
        self.fresh += 1
        return self.fresh

    def writing(self, name, start, end):
        """The list after writing positions one by one: shared or missing memory is replaced."""
        held = list(self.lists[name])
        others = {label for other, labels in self.lists.items() if other != name for label in labels}
        for position in range(start, end):
            at = position // CHUNK
            if at == len(held):
                held.append(self.label())
            elif held[at] in others:
                held[at] = self.label()
        return held


OPERATIONS = st.one_of(
    st.tuples(st.just("new"), st.just(0), st.just(0)),
    st.tuples(st.just("reserve"), st.integers(0, 9), st.integers(1, 700)),
    st.tuples(st.just("share"), st.integers(0, 9), st.integers(0, 1200)),
    st.tuples(st.just("trim"), st.integers(0, 9), st.integers(0, 1200)),
    st.tuples(st.just("release"), st.integers(0, 9), st.just(0)),
)


@given(st.lists(OPERATIONS, max_size=40), st.integers(1, 12))
@settings(max_examples=200, deadline=None)
def test_the_books_equal_a_naive_model_and_conserve_every_chunk(operations, capacity):
    pool, naive, lengths = Pool(capacity * CHUNK), NaivePool(capacity), {}
    for name, which, amount in operations:
        if name == "new":
            holder = pool.new()
            naive.lists[holder], lengths[holder] = [], 0
        elif lengths:
            holder = sorted(lengths)[which % len(lengths)]
            length = lengths[holder]
            if name == "reserve":
                after = naive.writing(holder, length, length + amount)
                need = len(set(after) - set(naive.lists[holder]))
                assert pool.missing(holder, length, length + amount) == need
                if need <= naive.free:
                    pool.reserve(holder, length, length + amount)
                    naive.lists[holder], lengths[holder] = after, length + amount
                else:
                    with pytest.raises(ValueError, match="are free"):
                        pool.reserve(holder, length, length + amount)
            elif name == "share":
                twin = pool.share(holder, min(amount, length))
                lengths[twin] = min(amount, length)
                naive.lists[twin] = naive.lists[holder][: chunks(lengths[twin])]
            elif name == "trim":
                pool.trim(holder, amount)
                naive.lists[holder] = naive.lists[holder][: chunks(amount)]
                lengths[holder] = min(length, amount)
            else:
                pool.release(holder)
                del naive.lists[holder], lengths[holder]
        pool.check()
        assert pool.free == naive.free
        same = {}
        for holder, labels in naive.lists.items():
            assert pool.held(holder) == len(labels)
            for label, chunk in zip(labels, pool.tables[holder], strict=True):
                assert same.setdefault(label, chunk) == chunk, "what is shared is one chunk"
        assert len(set(same.values())) == len(same), "what is not shared are two"
        for holder, labels in naive.lists.items():
            others = [label for other, held in naive.lists.items() if other != holder for label in held]
            assert pool.own(holder) == sum(label not in others for label in labels)


def test_a_full_chunk_is_shared_for_nothing_and_an_open_one_costs_its_copy():
    pool = Pool(8 * CHUNK)
    lane = pool.new()
    pool.reserve(lane, 0, 2 * CHUNK)
    pool.share(lane, 2 * CHUNK)
    assert pool.missing(lane, 2 * CHUNK, 2 * CHUNK + 1) == 1, "only the chunk that follows"
    pool.reserve(lane, 2 * CHUNK, 2 * CHUNK + 10)
    kept = pool.share(lane, 2 * CHUNK + 5)
    assert pool.missing(lane, 2 * CHUNK + 5, 2 * CHUNK + 6) == 1, "copy on write"
    pool.release(kept)
    assert pool.missing(lane, 2 * CHUNK + 5, 2 * CHUNK + 6) == 0, "nobody else has it any more"


def test_mistakes_of_the_caller_are_refused():
    with pytest.raises(UsageError, match="--kv-pool-tokens 255 is less than one chunk of 256"):
        Pool(255)
    pool = Pool(1000)
    assert (pool.capacity, pool.tokens) == (3, 768)
    lane = pool.new()
    with pytest.raises(ValueError, match="do not follow"):
        pool.missing(lane, 1, 5)
    with pytest.raises(ValueError, match="not held"):
        pool.share(lane, 1)
