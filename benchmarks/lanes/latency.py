"""Cases about the first token: of a short request behind a long prompt, and of a follow-up turn."""

import statistics
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from benchmarks.lanes.client import Engine, Request
from benchmarks.lanes.figures import Figures, case, watched
from benchmarks.lanes.sides import LANES, Sides

BEHIND, ITSELF, FOLLOW_UP, FRESH = "behind", "itself", "follow-up", "fresh"
WANTED_EXTRA_S = 0.2
WANTED_GAIN = 20
ARRIVES_S = 0.02  # after a window's report: in the middle of the next window
ANSWER = 8


class Behind:
    """A short request that arrives while a long prompt is being read, early, a third on, and two thirds on."""

    name = "behind a long prompt"
    STAGES = (0.0, 1 / 3, 2 / 3)

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._figures = Figures()
        self._extras: list[float] = []
        self._late = 0

    def measure(self, turn: int) -> None:
        """One round: every stage once, and the short request by itself."""
        sides, engine = self._sides, self._sides.engine(LANES)
        behind, itself, others = [], [], []
        for stage in self.STAGES:
            (short, overlapped), busy = watched(engine, partial(self._overtake, engine, stage))
            lone, busy_lone = watched(engine, partial(engine.answer, sides.prompts.passage(sides.sizes.short), ANSWER))
            others += [busy, busy_lone]
            self._late += not overlapped
            behind.append(short.first)
            itself.append(lone.first)
        if turn:
            self._extras += [a - b for a, b in zip(behind, itself, strict=True)]
        self._figures.add(turn, BEHIND, max(others), first=statistics.median(behind))
        self._figures.add(turn, ITSELF, max(others), first=statistics.median(itself))

    def _overtake(self, engine: Engine, stage: float) -> tuple[Request, bool]:
        """The short request, and whether the long one was still being read when its first token came."""
        prompts, sizes = self._sides.prompts, self._sides.sizes
        long = engine.send(prompts.passage(sizes.long), ANSWER)
        if stage:
            engine.until(lambda: long.reached >= stage * sizes.long)
        time.sleep(ARRIVES_S)
        short = engine.send(prompts.passage(sizes.short), ANSWER)
        engine.until(lambda: bool(short.times))
        overlapped = not long.times
        engine.stop(long)
        engine.wait([short, long])
        return short, overlapped

    def cases(self, model: str) -> Iterator[dict[str, Any]]:
        """Seconds to the first token; `extra_s`: what the long prompt added, in the median and at worst."""
        found, sizes = self._figures, self._sides.sizes
        yield case(
            f"{model}, first token of {sizes.short} tokens behind {sizes.long}",
            "s",
            found.median(BEHIND, "first"),
            found.median(ITSELF, "first"),
            baseline_is="the short request by itself",
            extra_s={"median": statistics.median(self._extras), "worst": max(self._extras)},
            wanted_extra_s=WANTED_EXTRA_S,
            arrived_too_late=self._late,
            spread=[found.spread(side, "first") for side in (BEHIND, ITSELF)],
            others=found.busiest,
        )


class FollowUp:
    """The next turn of a long conversation against a prompt of the same length that was never read."""

    name = "follow-up"

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._figures = Figures()
        self._reused: list[int] = []

    def measure(self, turn: int) -> None:
        """One round: a conversation, its next turn, and a fresh prompt as long as both."""
        prompts, sizes, engine = self._sides.prompts, self._sides.sizes, self._sides.engine(LANES)
        history = prompts.passage(sizes.long - sizes.turn - 2 * ANSWER)
        first = engine.answer(history, ANSWER)
        following = [*history, *first.tokens, *prompts.turn(sizes.turn)]
        second, busy = watched(engine, partial(engine.answer, following, ANSWER))
        fresh, busy_fresh = watched(engine, partial(engine.answer, prompts.passage(len(following)), ANSWER))
        self._reused.append(second.reused)
        self._figures.add(turn, FOLLOW_UP, busy, first=second.first)
        self._figures.add(turn, FRESH, busy_fresh, first=fresh.first)

    def cases(self, model: str) -> Iterator[dict[str, Any]]:
        """Seconds to the first token."""
        found, sizes = self._figures, self._sides.sizes
        yield case(
            f"{model}, follow-up turn of {sizes.turn} tokens, first token at {sizes.long - ANSWER}",
            "s",
            found.median(FOLLOW_UP, "first"),
            found.median(FRESH, "first"),
            baseline_is="a fresh read of the same length",
            wanted=WANTED_GAIN,
            reused=min(self._reused),
            spread=[found.spread(side, "first") for side in (FOLLOW_UP, FRESH)],
            others=found.busiest,
        )
