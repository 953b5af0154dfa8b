"""What asking the MTP block for drafts gives: how many are computed, verified and stand, by depth. Pure.

The block says of each draft how likely it is, and the scheduler verifies only those that are worth their row. So three
shares are counted for every depth that was asked for: steps that were computed (a hopeless chain ends early), rows that
were verified, and drafts that stood. Each is the mean of a Beta distribution whose prior is that of all lanes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from strata.engine.acceptance import ALL_MEMORY, BELIEF, DEEPER, FADING, LANE_MEMORY, WEIGHT_OF_ALL, WEIGHT_OF_BELIEF

LEAST_SAID, MOST_SAID = 1e-4, 0.995
POWER_MEMORY = 0.99
POWER_PRIOR = 2.0
POWERS = (0.1, 10.0)


@dataclass(frozen=True, slots=True)
class Chain:
    """Drafts of one source, by depth: the chance that all up to there stand, and what is expected to be verified and
    computed for it (1 each where nothing ends a chain early)."""

    stand: Sequence[float]
    rows: Sequence[float]
    steps: Sequence[float]

    @classmethod
    def whole(cls, stand: Sequence[float]) -> "Chain":
        """A chain of which every draft is computed and verified."""
        return cls(stand, (1,) * len(stand), (1,) * len(stand))


@dataclass(slots=True)
class _Depth:
    """Decayed counts of one depth."""

    asked: float = 0.0
    ran: float = 0.0
    shown: float = 0.0
    stood: float = 0.0

    def add(self, memory: float, ran: bool, shown: bool, stood: bool) -> None:
        self.asked = self.asked * memory + 1.0
        self.ran = self.ran * memory + ran
        self.shown = self.shown * memory + shown
        self.stood = self.stood * memory + stood

    def fade(self, memory: float) -> None:
        self.asked *= memory
        self.ran *= memory
        self.shown *= memory
        self.stood *= memory

    def mixed(self, prior: tuple[float, float, float], weight: float) -> tuple[float, float, float]:
        total = self.asked + weight
        return (
            (self.ran + weight * prior[0]) / total,
            (self.shown + weight * prior[1]) / total,
            (self.stood + weight * prior[2]) / total,
        )


_UNSEEN = _Depth()


class Chains:
    """The statistics of every lane's asked drafts."""

    def __init__(self) -> None:
        self._all: list[_Depth] = []
        self._lanes: dict[int, list[_Depth]] = {}

    def expected(self, lane: int, depth: int, least: float = 0.0) -> Chain:
        """What asking for `depth` drafts would give; it ends before a depth whose own chance is below `least`."""
        own = self._lanes.get(lane, ())
        stand: list[float] = []
        rows: list[float] = []
        steps: list[float] = []
        belief = (1.0, 1.0, BELIEF)
        before = last = 1.0
        for at in range(depth):
            shared = (self._all[at] if at < len(self._all) else _UNSEEN).mixed(belief, WEIGHT_OF_BELIEF)
            ran, shown, stood = (own[at] if at < len(own) else _UNSEEN).mixed(shared, WEIGHT_OF_ALL)
            stood = min(stood, before)
            if stood < least * before:
                break
            steps.append(ran)
            rows.append(shown)
            stand.append(stood)
            # One step deeper as many are computed as were verified; the chain goes on as it began, a little worse.
            again = min(1.0, DEEPER * shared[2] / last)
            last = max(shared[2], 1e-6)
            belief = (shared[1], shared[1], again * shared[2])
            before = max(stood, 1e-6)
        return Chain(stand, rows, steps)

    def observe(self, lane: int, asked: int, ran: int, shown: int, stood: int) -> None:
        """Of `asked` drafts `ran` were computed, `shown` verified, and the first `stood` of them stood."""
        own = self._lanes.setdefault(lane, [])
        for counts, memory in ((own, LANE_MEMORY), (self._all, ALL_MEMORY)):
            while len(counts) < asked:
                counts.append(_Depth())
            for at in range(asked):
                counts[at].add(memory, at < ran, at < shown, at < stood)

    def fade(self, lane: int, untried_from: int) -> None:
        """A window passed in which the lane asked for `untried_from` drafts."""
        for depth in self._lanes.get(lane, ())[untried_from:]:
            depth.fade(FADING)

    def fade_all(self, untried_from: int) -> None:
        """A window passed in which no lane asked for more than `untried_from` drafts."""
        for depth in self._all[untried_from:]:
            depth.fade(FADING)

    def leave(self, lane: int) -> None:
        """The lane is gone; what it taught about all lanes stays."""
        self._lanes.pop(lane, None)


@dataclass(slots=True)
class _Power:
    value: float = 1.0
    information: float = 0.0

    def add(self, log: float, stood: bool) -> None:
        """One step of Fisher scoring for the exponent, given the logarithm of what was said."""
        chance = math.exp(self.value * log)
        odds = log / (1 - chance)
        self.information = self.information * POWER_MEMORY + chance * log * odds
        self.value += (stood - chance) * odds / (self.information + POWER_PRIOR)
        self.value = min(max(self.value, POWERS[0]), POWERS[1])


class Trust:
    """What the block's own chances are worth: a chain that it gives x stands with x ** power, learned for each lane.

    Greedy text stands about as often as a trained block says; drawn text less often, and how much less depends on the
    temperature: one exponent a lane follows that.
    """

    def __init__(self) -> None:
        self._all = _Power()
        self._lanes: dict[int, _Power] = {}

    def chance(self, lane: int, said: float) -> float:
        """The chance that a chain stands of which the block said that it is `said`."""
        return float(min(max(said, LEAST_SAID), MOST_SAID) ** self._power(lane))

    def said(self, lane: int, chance: float) -> float:
        """What the block has to say for this chance."""
        return float(min(max(chance, 0.0), 1.0) ** (1 / self._power(lane)))

    def observe(self, lane: int, said: float, stood: bool) -> None:
        """A chain of which the block said `said` stood, or did not."""
        log = math.log(min(max(said, LEAST_SAID), MOST_SAID))
        own = self._lanes.get(lane)
        if own is None:
            own = self._lanes[lane] = _Power(self._all.value)
        own.add(log, stood)
        self._all.add(log, stood)

    def leave(self, lane: int) -> None:
        """The lane is gone; what it taught about all lanes stays."""
        self._lanes.pop(lane, None)

    def _power(self, lane: int) -> float:
        return self._lanes.get(lane, self._all).value
