"""Drafts in company against windows without: what the prices get wrong may not cost more than a try now and then."""

import pytest
from scheduler_sim import Job, World, simulate

from strata.engine.acceptance import MTP, lookup_source
from strata.engine.company import FIRST_PAUSE, KNOWN, LONGEST_PAUSE, Company
from strata.engine.costs import Work
from strata.engine.lookup import FORCED
from strata.engine.scheduler import Policy, Scheduler

TABLE = (0, 1.25, 1.7, 2.25, 2.85, 3.5, 3.95, 4.7, 5.15)
"""Milliseconds of a window of so many rows, as a small model takes them on one core."""


def dear_drafts(w: Work, _: float) -> float:
    """Rows of drafts cost more than those of lanes: no price of a row says so."""
    rows = TABLE[w.rows] if w.rows < len(TABLE) else TABLE[-1] + 0.55 * (w.rows - len(TABLE) + 1)
    return (rows + 0.45 * w.steps + 0.12 * w.drafted + 0.8 * (w.rows - w.lanes)) / 1000


def knee(w: Work, _: float) -> float:
    """Rows are cheap up to eight and dear beyond, between the knots of the prices."""
    return 0.010 + 0.001 * min(w.rows, 8) + 0.006 * max(0, w.rows - 8) + 0.0005 * w.steps


WORLDS = {"dear drafts": World("dear drafts", dear_drafts, 0.15), "knee": World("knee", knee, 0.1)}


def seconds(world: str, lanes: int, accept: float, policy: Policy) -> float:
    """The time of conversations that the scheduler has met before."""
    jobs = [Job(20 + 7 * n, 400, accept=accept, repeats=0.3, lookup_accept=accept) for n in range(lanes)]
    scheduler = Scheduler(policy)
    simulate(jobs, WORLDS[world], scheduler, keep=False)
    return simulate(jobs, WORLDS[world], scheduler, keep=False).clock


@pytest.mark.parametrize(("world", "lanes"), [("dear drafts", 2), ("dear drafts", 8), ("knee", 4), ("knee", 8)])
def test_drafts_never_cost_much_in_company(world: str, lanes: int) -> None:
    """[No comparison: 0.948 of two lanes; windows with drafts counted as windows without.]"""
    plain = seconds(world, lanes, 0.9, Policy())
    assert plain / seconds(world, lanes, 0.9, Policy(mtp_depth=4, lookup_depth=8)) >= 0.98


def test_drafts_that_pay_are_kept() -> None:
    """The other side of the comparison."""
    assert seconds("knee", 2, 0.9, Policy()) / seconds("knee", 2, 0.9, Policy(mtp_depth=4)) >= 1.7


def told(company: Company, lanes: int, sources: set[str], rate: float, windows: int) -> None:
    for _ in range(windows):
        company.observe(lanes, sources, 10, 10 / rate)


def pause(company: Company, lanes: int, source: str) -> int:
    """Windows until the source may draft again."""
    count = 0
    while not company.bound(lanes, source, 3):
        told(company, lanes, set(), 100.0, 1)
        count += 1
    return count


def test_a_source_that_falls_short_pauses_ever_longer_where_it_did() -> None:
    """[Pauses of one length; of all numbers of lanes; that end where others decode.]"""
    company, some = Company(), int(2 * KNOWN)
    told(company, 4, set(), 100.0, some)
    told(company, 4, {MTP}, 90.0, int(KNOWN) - 1)
    assert company.bound(4, MTP, 3) == 3, "not known yet"
    expected = FIRST_PAUSE
    for _ in range(9):
        told(company, 4, {MTP}, 90.0, some)
        assert company.bound(4, MTP, 3) == 0
        assert company.bound(3, MTP, 3) == company.bound(4, lookup_source(8), 3) == 3
        told(company, 3, set(), 100.0, 2 * LONGEST_PAUSE)
        assert company.bound(4, MTP, 3) == 0
        left = pause(company, 4, MTP)
        assert 0 < left <= expected
        expected = min(2 * expected, LONGEST_PAUSE)
    assert left > LONGEST_PAUSE // 2
    told(company, 4, {MTP}, 120.0, some)
    told(company, 4, {MTP}, 10.0, 4 * some)
    assert pause(company, 4, MTP) <= 2 * FIRST_PAUSE


def test_forced_tokens_are_judged_by_themselves_and_a_lane_alone_by_nobody() -> None:
    """[Forced tokens pause with those from histories; alone a lane is compared.]"""
    company, some = Company(), int(4 * KNOWN)
    for lanes in (1, 4):
        told(company, lanes, set(), 100.0, some)
        told(company, lanes, {lookup_source(8)}, 50.0, some)
    assert company.bound(4, lookup_source(20), 5) == 0
    assert company.bound(4, lookup_source(FORCED), 5) == company.bound(1, lookup_source(8), 5) == 5


def test_one_stalled_window_decides_nothing() -> None:
    """[The mean of seconds: one stall of a hundred windows' length pauses drafts that gain a fifth.]"""
    company, some = Company(), int(4 * KNOWN)
    told(company, 2, set(), 100.0, some)
    told(company, 2, {MTP}, 130.0, some)
    told(company, 2, {MTP}, 1.3, 1)
    assert company.bound(2, MTP, 4) == 4
