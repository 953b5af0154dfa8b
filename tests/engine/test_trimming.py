"""Chances that the MTP block gives its drafts: what they are worth, and which drafts are verified for them."""

import itertools
import random
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from strata.engine.acceptance import MTP
from strata.engine.chains import Chains, Trust
from strata.engine.costs import CostModel, Work
from strata.engine.scheduler import Demand, Policy, Scheduler, Turn, Verdict, Window
from strata.engine.trimming import Offered, likely, trimmed_work, worthwhile
from strata.engine.window import propose


class Prices(CostModel):
    """Rows by a table of increments."""

    def __init__(self, rows: list[float]) -> None:
        super().__init__()
        self._table = [0.0, *itertools.accumulate(rows)]

    def rows_seconds(self, rows: float) -> float:
        return self._table[int(rows)]


@pytest.mark.parametrize("seed", range(60))
def test_the_drafts_kept_earn_as_much_as_any_choice(seed: int) -> None:
    """Every number of drafts of every lane is tried. [The first draft that loses ends the search; the price of rows
    without that of their draw; worth without the rate.]"""
    rng = random.Random(seed)
    prices = Prices([rng.uniform(1, 5), *(rng.choice([0.1, 0.5, 2.0]) for _ in range(12))])
    row_s, rate = rng.uniform(0, 0.3), rng.uniform(0.5, 2)
    chains = [[rng.uniform(0.5, 2) * rng.uniform(0.3, 1) ** d for d in range(1, 4)] for _ in range(3)]
    chains = [sorted(chain, reverse=True) for chain in chains]

    def earned(counts: tuple[int, ...]) -> float:
        value = sum(sum(chain[:n]) for chain, n in zip(chains, counts, strict=True))
        rows = prices.rows_seconds(3 + sum(counts)) - prices.rows_seconds(3)
        return value - rate * (rows + sum(counts) * row_s)

    kept = worthwhile([(v, lane) for lane, chain in enumerate(chains) for v in chain], 3, row_s, rate, prices)
    best = max(earned(counts) for counts in itertools.product(range(4), repeat=3))
    assert earned((kept.count(0), kept.count(1), kept.count(2))) == pytest.approx(best)


def test_a_chain_ends_at_the_first_draft_that_is_unlikely_by_itself() -> None:
    """[The least chance is asked of the whole chain.]"""
    assert likely([0.6, 0.36, 0.216], 0.5) == [0.6, 0.36, 0.216]
    assert likely([0.9, 0.3, 0.29], 0.5) == [0.9]
    assert likely([0.4, 0.3], 0.0) == [0.4, 0.3]


def test_the_work_of_a_trimmed_window() -> None:
    work = Work(10, 2, 10, steps=4, drafted=8, reach=1000)
    offered = {1: Offered(4, 3, (0.9,)), 2: Offered(4, 1, ())}
    assert trimmed_work(work, 7, 700, offered) == Work(3, 2, 3, steps=3, drafted=4, reach=300)


@pytest.mark.parametrize("power", [0.5, 1.0, 3.0])
def test_what_the_block_says_is_trusted_as_far_as_it_came_true(power: float) -> None:
    """[Chances are taken as they are said; one lane's for another's; `said` is no inverse.]"""
    rng, trust = random.Random(1), Trust()
    for _ in range(3000):
        said = rng.uniform(0.2, 0.98)
        trust.observe(1, said, rng.random() < said**power)
    assert trust.chance(1, 0.7) == pytest.approx(0.7**power, abs=0.07)
    assert trust.chance(1, trust.said(1, 0.4)) == pytest.approx(0.4)


def test_chains_count_what_was_asked_computed_verified_and_stood() -> None:
    """[Shares of what ran, not of what was asked for.]"""
    chains = Chains()
    for n in range(600):
        chains.observe(1, 2, 2 if n % 2 else 1, n % 2, n % 4 // 3)
    chain = chains.expected(1, 2)
    assert chain.steps == pytest.approx([1, 0.5], abs=0.06)
    assert chain.rows == pytest.approx([0.5, 0], abs=0.06)
    assert chain.stand == pytest.approx([0.25, 0], abs=0.06)


def drafting() -> tuple[Scheduler, Window]:
    """A scheduler that has seen chains stand as often as was said, where rows are cheap,
    and a window with drafts for every lane."""
    scheduler, rng = Scheduler(Policy(mtp_depth=3)), random.Random(3)
    for step in range(200):
        window = scheduler.window([Demand(n, 10 + step, 11 + step, 11 + step, False, 9, True) for n in (1, 2)])
        said = {turn.lane: [0.9, 0.8, 0.7][: window.draft_depth] for turn in window.turns if turn.source == MTP}
        window = scheduler.trimmed(window, said)
        verdicts = {}
        for turn in window.turns:
            stood = 0
            while stood < turn.drafts and rng.random() < 0.9:
                stood += 1
            if turn.drafts:
                verdicts[turn.lane] = Verdict(stood, stood < turn.drafts)
        scheduler.measured(window, 0.01 + 0.0005 * window.work.rows + 0.0002 * window.work.steps, verdicts)
        if step > 100 and window.trial_s is None and len(said) == 2:
            break
    window = scheduler.window([Demand(n, 300, 301, 301, False, 9, True) for n in (1, 2)])
    assert window.trial_s is None
    assert [turn.source for turn in window.turns] == [MTP, MTP]
    return scheduler, window


def test_hopeless_drafts_are_dropped_and_likely_ones_kept() -> None:
    """[Nothing is trimmed; all lanes are trimmed alike; the work keeps the rows that were dropped.]"""
    scheduler, window = drafting()
    depth = window.draft_depth
    trimmed = scheduler.trimmed(window, {1: [0.99] * depth, 2: [1e-4] * depth})
    first, second = trimmed.turns
    assert (first.drafts, first.source) == (window.turns[0].drafts, MTP)
    assert (second.drafts, second.source, second.count, second.draws) == (0, None, 1, True)
    assert trimmed.work.rows == trimmed.work.drawn == 2 + first.drafts
    assert trimmed.seconds < window.seconds


def test_a_chain_that_the_block_ended_has_no_more_drafts() -> None:
    """[Drafts that were asked for are taken to be there.]"""
    scheduler, window = drafting()
    assert all(0 < least < 1 for least in window.least.values())
    trimmed = scheduler.trimmed(window, {1: [0.99], 2: []})
    assert [turn.drafts for turn in trimmed.turns] == [1, 0]
    assert (trimmed.work.steps, trimmed.work.drafted) == (min(2, window.draft_depth), 1 + min(2, window.draft_depth))


def test_drafts_that_are_not_there_are_neither_told_nor_verified() -> None:
    """[The chain's end is taken for a draft; `least` is not passed on; drafts that were dropped are computed.]"""
    asked: list[object] = []

    class Block:
        def draft_chains(self, states, tokens, depth, least):
            asked.append((states, tokens, depth, least))
            return np.array([[5, 6, -1], [7, 8, 9]]), np.array([[0.5, 0.25, 0.0], [0.5, 0.25, 0.125]], np.float32)

    lanes = {n: SimpleNamespace(state=f"state {n}", tokens=[1, n]) for n in (3, 4)}
    turns = (Turn(3, 1, True, 3, MTP), Turn(4, 1, True, 3, MTP))
    window = Window(turns, Work(8, 2, 8, steps=3), least={3: 0.2, 4: 0.1})
    told: list[object] = []

    def trim(window, said):
        told.append(said)
        return replace(window, turns=(replace(turns[0], drafts=2), replace(turns[1], drafts=1)))

    trimmed, drafts = propose(Block(), lanes, window, {}, trim)
    assert asked == [(["state 3", "state 4"], [3, 4], 3, [0.2, 0.1])]
    assert told == [{3: [0.5, 0.25], 4: [0.5, 0.25, 0.125]}]
    assert drafts == {3: [5, 6], 4: [7]}
    assert [turn.drafts for turn in trimmed.turns] == [2, 1]
