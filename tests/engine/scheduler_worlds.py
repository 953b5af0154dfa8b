"""Worlds of costs for the simulation: what windows may truly cost, in shapes that the model of prices has or lacks."""

from collections.abc import Callable

from scheduler_sim import World

from strata.engine.costs import Work

CHOSEN, EXPERTS = 10, 512


def linear(
    fixed: float, row: float, step: float = 0.0, drafted: float = 0.0, lane: float = 0.0
) -> Callable[[Work, float], float]:
    """Fixed price, rows, steps and rows of the MTP block, lanes."""
    return lambda w, _: fixed + row * w.rows + step * w.steps + drafted * w.drafted + lane * w.lanes


def own_experts(w: Work, _: float) -> float:
    """Each row brings experts of its own, until all of them are there: concave in rows."""
    distinct = EXPERTS * (1 - (1 - CHOSEN / EXPERTS) ** w.rows)
    return 0.006 + 0.0009 * distinct + 0.0005 * w.steps + 0.0003 * w.drafted


def crowded(w: Work, _: float) -> float:
    """A second row costs as much as a first one up to 16 rows: nothing is gained by sharing a window of few."""
    return 0.010 + 0.011 * min(w.rows - 1, 16) + 0.002 * max(0, w.rows - 17) + 0.001 * w.steps


def convex(w: Work, _: float) -> float:
    """Every further row costs more than the one before: sharing always loses."""
    return 0.010 * w.rows**1.1 + 0.001 * w.steps


def tiles(w: Work, _: float) -> float:
    """Rows are computed four at a time."""
    return 0.001 + 0.004 * -(-w.rows // 4) + 0.0005 * w.steps


def drifting(w: Work, clock: float) -> float:
    """Every 20 s the price moves from windows to rows and back, as when experts leave a fast memory."""
    fixed, row = (0.020, 0.001) if int(clock / 20) % 2 else (0.012, 0.006)
    return fixed + row * w.rows + 0.001 * w.steps


def long_context(w: Work, _: float) -> float:
    """Rows cost more behind many tokens."""
    return 0.010 + 0.002 * w.rows + 2e-7 * w.reach + 0.001 * w.steps


WORLDS = {
    "cheap rows": World("cheap rows", linear(0.020, 0.001, 0.0002, 0.001), 0.05),
    "expensive rows": World("expensive rows", linear(0.004, 0.010, 0.0003, 0.001), 0.05),
    "own experts": World("own experts", own_experts, 0.05),
    "drafts costly": World("drafts costly", linear(0.010, 0.003, 0.004, 0.012), 0.05),
    "lanes costly": World("lanes costly", linear(0.005, 0.002, 0.001, 0.001, lane=0.004), 0.05),
    "crowded": World("crowded", crowded, 0.05),
    "convex": World("convex", convex, 0.05),
    "tiles": World("tiles", tiles, 0.05),
    "drifting": World("drifting", drifting, 0.05),
    "long context": World("long context", long_context, 0.05),
    "stalls": World("stalls", linear(0.020, 0.001, 0.0002, 0.001), 0.1, (0.01, 50.0)),
    "small model": World("small model", linear(0.0002, 0.0005, 0.0002, 0.0002), 0.1),
}
