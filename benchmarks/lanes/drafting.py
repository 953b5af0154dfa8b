"""Cases about drafts: what they gain alone and beside others, and how often they stand."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.lanes.figures import Figures, case, watched
from benchmarks.lanes.outcome import Outcome, together
from benchmarks.lanes.sides import LANES, NO_DRAFTS, Sides
from benchmarks.rounds import rotated

DEPTH = 4
COUNTS = (1, 4)
TEXTS = 4


class Drafts:
    """The same conversations with drafts and without, alone and four at once; how often drafts stand, by depth."""

    name = "drafts"

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._figures = {count: Figures() for count in COUNTS}
        self._drafted: dict[int, list[Outcome]] = {count: [] for count in COUNTS}
        self._kept: list[int] = []

    def measure(self, turn: int) -> None:
        """One round; the depths are counted in the first only: counting does not depend on time."""
        sides, new = self._sides, self._sides.sizes.lone
        if not self._kept:
            self._kept = sides.kept_drafts([sides.prompts.passage(sides.sizes.most) for _ in range(TEXTS)], new, DEPTH)
        for count in COUNTS:
            prompts = sides.conversations(count)
            for name in rotated([LANES, NO_DRAFTS], turn):
                engine = sides.engine(name)
                outcome, others = watched(engine, partial(together, engine, prompts, new))
                self._figures[count].add_outcome(turn, name, outcome, others)
                if name == LANES:
                    self._drafted[count].append(outcome)

    def cases(self, model: str) -> Iterator[dict[str, Any]]:
        """Gains; tokens a window, of which one is no draft; by depth, the share of the drafts reached that stood."""
        for count, found in self._figures.items():
            where = "alone" if count == 1 else f"{count} conversations"
            yield case(
                f"{model}, drafts, {where}, total",
                "tokens/s",
                found.median(LANES, "total"),
                found.median(NO_DRAFTS, "total"),
                baseline_is="--spec 0 --lookup 0",
                spread=[found.spread(side, "total") for side in (LANES, NO_DRAFTS)],
                decoding=found.medians("decoding"),
                others=found.busiest,
            )
            done = self._drafted[count]
            accepted, offered = sum(o.accepted for o in done), sum(o.offered for o in done)
            windows = sum(o.windows for o in done)
            yield case(
                f"{model}, drafts, {where}, tokens a window of a conversation",
                "tokens",
                (windows + accepted) / windows,
                1.0,
                accepted=accepted,
                offered=offered,
                accepted_share=accepted / offered if offered else None,
            )
        for depth in range(DEPTH):
            reached = sum(kept >= depth for kept in self._kept)
            if reached:
                stood = sum(kept > depth for kept in self._kept)
                name = f"{model}, drafts of the MTP block, share that stands at depth {depth + 1}"
                yield case(name, "share", stood / reached, 1.0, reached=reached)
