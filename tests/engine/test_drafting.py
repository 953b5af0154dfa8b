"""Chances of drafts, and the choice of lanes and drafts against trying every choice."""

import itertools
import random

import pytest

from strata.engine.acceptance import ALL_MEMORY, BELIEF, MTP, Acceptance, lookup_source
from strata.engine.allocation import Candidate, allocate, candidate
from strata.engine.chains import Chain
from strata.engine.costs import CostModel, Work


class Prices(CostModel):
    """Prices that are given, not learned; rows by a table of increments."""

    def __init__(self, rows: list[float], drawn: float, lane: float, step: float, drafted: float) -> None:
        super().__init__()
        self._table = [0.0, *itertools.accumulate(rows)]
        self.drawn, self.lane, self.step, self.drafted, self.reach = drawn, lane, step, drafted, 0.0

    def rows_seconds(self, rows: int) -> float:
        return self._table[rows]


def some(seed: int, lanes: int, depth: int) -> tuple[list[Candidate], Prices]:
    rng = random.Random(seed)
    rows = [rng.uniform(1, 10), *(rng.uniform(0.1, rng.choice([0.3, 1.0, 6.0])) for _ in range(lanes * (1 + depth)))]
    prices = Prices(rows, rng.uniform(0, 0.5), rng.uniform(0, 1), rng.uniform(0, 2), rng.uniform(0, 1))
    candidates = []
    for lane in range(lanes):
        accept = rng.choice([0.0, 0.3, 0.6, 0.95])
        source = rng.choice([MTP, MTP, lookup_source(8)])
        chain = Chain.whole([accept**d for d in range(1, depth + 1)])
        candidates.append(candidate(lane, 10, [(source, chain)], prices))
    return candidates, prices


def progress(candidates: list[Candidate], drafts: dict[int, int], prices: Prices) -> float:
    """Seconds of serving alone a second of this window, from the definition."""
    block = [d for n, d in drafts.items() if d and candidates[n].source == MTP]
    rows = sum(1 + d for d in drafts.values())
    work = Work(rows, len(drafts), rows, max(block, default=0), max(block, default=0) * len(block))
    value = sum(candidates[n].worth * (1 + sum(candidates[n].chances[:d])) for n, d in drafts.items())
    return value / prices.seconds(work)


@pytest.mark.parametrize("seed", range(150))
def test_the_chosen_window_is_nearly_the_best_of_all(seed: int) -> None:
    """All groups and all drafts of three lanes are tried. [Drafts without regard to the block's steps; a first loss
    ends the search; the group is always all lanes; a chance where a product of chances belongs.]"""
    candidates, prices = some(seed, lanes=3, depth=2)
    chosen = allocate(candidates, prices, 1e9, 1000)
    assert chosen.speedup == pytest.approx(progress(candidates, chosen.drafts, prices))
    assert chosen.seconds == pytest.approx(prices.seconds(chosen.work))
    best = max(
        progress(candidates, dict(zip(range(size), drafts, strict=True)), prices)
        for size in (1, 2, 3)
        for drafts in itertools.product(range(3), repeat=size)
    )
    assert chosen.speedup >= 0.93 * best
    assert chosen.speedup >= 0.99, "alone is always possible"


@pytest.mark.parametrize("seed", range(60))
def test_a_window_respects_its_bounds_and_a_known_shape_gives_the_same(seed: int) -> None:
    """[The time bound is not asked of drafts, or not of groups.]"""
    candidates, prices = some(seed, lanes=6, depth=3)
    free = allocate(candidates, prices, 1e9, 1000)
    again = allocate(candidates, prices, 1e9, 1000, free.shape)
    assert (again.drafts, again.speedup) == (free.drafts, free.speedup)
    for longest, rows in ((0.7 * free.seconds, 1000), (1e9, max(1, free.work.rows - 1)), (0.0, 1000)):
        bounded = allocate(candidates, prices, longest, rows)
        single = bounded.work.rows == 1
        assert single or (bounded.seconds <= longest and bounded.work.rows <= rows)
        assert bounded.drafts


def test_alone_a_lane_takes_the_source_that_earns_most() -> None:
    prices = Prices([10.0, *[0.5] * 20], 0.1, 0.1, 1.0, 0.5)
    offers = [(MTP, Chain.whole([0.8, 0.6])), (lookup_source(8), Chain.whole([0.7, 0.65, 0.6, 0.55]))]
    assert candidate(0, 0, offers, prices).source == lookup_source(8)
    assert candidate(0, 0, offers[:1], prices).source == MTP
    unlikely = [(MTP, Chain.whole([0.8])), (lookup_source(3), Chain.whole([0.01]))]
    assert candidate(0, 0, unlikely, prices).source == MTP
    plain = candidate(0, 0, [], prices)
    assert (plain.source, plain.alone, plain.worth) == (None, 0, pytest.approx(10.2))


def test_chances_are_products_of_what_was_seen() -> None:
    """[Depths counted from those offered, not from those reached; the chain without its earlier links.]"""
    acceptance = Acceptance()
    assert acceptance.chances(0, MTP, 1) == [BELIEF]
    for _ in range(400):
        acceptance.observe(0, MTP, 2, refused=True)
    first, second, third = acceptance.chances(0, MTP, 3)
    assert first == pytest.approx(1, abs=0.03)
    assert second == pytest.approx(1, abs=0.06)
    assert third == pytest.approx(0, abs=0.06)
    for n in range(600):
        acceptance.observe(1, MTP, n % 2, refused=True)
    assert acceptance.chances(1, MTP, 1)[0] == pytest.approx(0.5, abs=0.06)
    assert acceptance.chances(1, "lookup2", 1) == [BELIEF], "sources are counted apart"


def test_a_new_lane_starts_from_what_all_lanes_did() -> None:
    acceptance = Acceptance()
    for n in range(300):
        acceptance.observe(n % 5, MTP, 0, refused=True)
    assert acceptance.chances(77, MTP, 1)[0] < 0.05
    acceptance.leave(3)
    assert acceptance.chances(3, MTP, 1)[0] < 0.05
    for _ in range(60):
        acceptance.observe(77, MTP, 1, refused=False)
    assert acceptance.chances(77, MTP, 1)[0] > 0.8, "its own history outweighs that of others"


def test_what_is_not_tried_fades_into_another_try() -> None:
    """[Nothing fades: a lane that once failed never drafts again.]"""
    acceptance = Acceptance()
    for _ in range(round(1 / (1 - ALL_MEMORY))):
        acceptance.observe(0, MTP, 0, refused=True)
    low = acceptance.chances(0, MTP, 1)[0]
    for _ in range(3000):
        acceptance.fade(0, MTP, 0)
        acceptance.fade_all(MTP, 0)
    assert low < 0.05 < 0.4 < acceptance.chances(0, MTP, 1)[0]


def test_an_unlikely_draft_ends_the_chain() -> None:
    """[The least chance is asked of the whole chain.]"""
    acceptance = Acceptance()
    for _ in range(200):
        acceptance.observe(0, MTP, 1, refused=True)
    assert len(acceptance.chances(0, MTP, 4, least=0.3)) == 1
    assert len(acceptance.chances(0, MTP, 4, least=0.0)) == 4
    assert len(Acceptance().chances(0, MTP, 4, least=0.5)) == 2, "0.6 and 0.54, though both together are less likely"
