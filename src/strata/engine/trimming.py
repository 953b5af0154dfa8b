"""Which drafts of the MTP block are verified, once it has said how likely they are. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strata.engine.chains import Chains, Trust
from strata.engine.costs import CostModel, Work


@dataclass(frozen=True, slots=True)
class Offered:
    """What a lane's turn was given by the MTP block: drafts asked for, steps computed, and what the block said of the
    chances of the chains that are verified."""

    asked: int
    ran: int
    said: tuple[float, ...]


def likely(said: Sequence[float], least: float) -> Sequence[float]:
    """The chain up to the first draft whose own chance, given those before it, is below `least`."""
    if least <= 0.0:
        return said
    before = 1.0
    for at, chance in enumerate(said):
        if chance < least * before:
            return said[:at]
        before = chance
    return said


def worthwhile(
    values: Sequence[tuple[float, int]], rows: int, row_s: float, rate: float, costs: CostModel
) -> list[int]:
    """How many drafts of each lane are verified beside `rows` rows: lanes, one entry a draft.

    `values`: (seconds that a draft is worth, its lane). By falling worth, as many as earn most over what they cost:
    `row_s` each and their rows, at `rate` seconds of worth a second.
    """
    ranked = sorted(values, reverse=True)
    before = costs.rows_seconds(rows)
    earned = best = 0.0
    taken = 0
    for number, (value, _) in enumerate(ranked, 1):
        after = costs.rows_seconds(rows + number)
        earned += value - rate * (after - before + row_s)
        before = after
        if earned > best:
            best, taken = earned, number
    return [lane for _, lane in ranked[:taken]]


def trimmed_work(work: Work, dropped: int, reach: int, offered: Mapping[int, Offered]) -> Work:
    """What the window does without `dropped` rows and the `reach` of these, after the steps that were computed."""
    steps = drafted = 0
    for one in offered.values():
        drafted += one.ran
        steps = max(steps, one.ran)
    return Work(
        work.rows - dropped, work.lanes, work.drawn - dropped, steps, drafted, work.reach - reach, work.amounts
    )


def judge_chain(
    chains: Chains, trust: Trust, lane: int, offered: Offered, drafts: int, stood: int, refused: bool
) -> None:
    """Count what became of the block's `drafts` of a lane: the first `stood` stood, and the next was `refused`, or the
    lane ended there and what was not compared counts for nothing."""
    shown = drafts if refused else stood
    asked = offered.asked if shown == drafts else shown
    if asked:
        chains.observe(lane, asked, min(offered.ran, asked), shown, stood)
    for at, said in enumerate(offered.said[:shown]):
        trust.observe(lane, said, at < stood)
