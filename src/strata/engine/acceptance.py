"""How often drafts stand, by depth: decayed counts a lane over decayed counts of all lanes over a belief. Pure.

The chance of depth d is conditional: of the drafts that were reached, because all before them stood, how many stood?
Each level is the mean of a Beta distribution whose prior is the level above (empirical Bayes). Counts of depths that
are not tried fade, so that what once failed is tried again, seldom.
"""

from dataclasses import dataclass, field

from strata.engine.lookup import FORCED

BELIEF = 0.6
DEEPER = 0.9
WEIGHT_OF_BELIEF = 2.0
WEIGHT_OF_ALL = 3.0
LANE_MEMORY = 0.97
ALL_MEMORY = 0.995
FADING = 0.998

MTP = "mtp"
_MATCHES = (4, 6, 9, 17, FORCED)


def lookup_source(matched: int) -> str:
    """The source of drafts found behind a match of `matched` tokens: longer matches have their own statistics, and
    so have tokens that a grammar forces."""
    return f"lookup{sum(matched >= least for least in _MATCHES)}"


@dataclass(slots=True)
class _Counts:
    reached: list[float] = field(default_factory=list)
    stood: list[float] = field(default_factory=list)

    def add(self, accepted: int, refused: bool, memory: float) -> None:
        reached = accepted + refused
        while len(self.reached) < reached:
            self.reached.append(0.0)
            self.stood.append(0.0)
        for depth in range(reached):
            self.reached[depth] = self.reached[depth] * memory + 1.0
            self.stood[depth] = self.stood[depth] * memory + (depth < accepted)

    def fade(self, untried_from: int, memory: float) -> None:
        for depth in range(untried_from, len(self.reached)):
            self.reached[depth] *= memory
            self.stood[depth] *= memory


class Acceptance:
    """The statistics of every lane and source of drafts."""

    def __init__(self) -> None:
        self._all: dict[str, _Counts] = {}
        self._lanes: dict[int, dict[str, _Counts]] = {}

    def chances(self, lane: int, source: str, depth: int, least: float = 0.0) -> list[float]:
        """The chance that the first d drafts all stand, for d = 1 .. `depth`: never growing.

        It ends before the first depth whose own (conditional) chance is below `least`.
        """
        every = self._all.get(source) or _Counts()
        own = self._lanes.get(lane, {}).get(source) or _Counts()
        chances: list[float] = []
        belief, chain = BELIEF, 1.0
        for at in range(depth):
            shared = belief
            if at < len(every.reached):
                shared = (every.stood[at] + WEIGHT_OF_BELIEF * belief) / (every.reached[at] + WEIGHT_OF_BELIEF)
            chance = shared
            if at < len(own.reached):
                chance = (own.stood[at] + WEIGHT_OF_ALL * shared) / (own.reached[at] + WEIGHT_OF_ALL)
            if chance < least:
                break
            chain *= chance
            chances.append(chain)
            belief = DEEPER * shared
        return chances

    def observe(self, lane: int, source: str, accepted: int, refused: bool) -> None:
        """Of a lane's drafts `accepted` stood, and the next one did not (`refused`) or was not compared."""
        own = self._lanes.setdefault(lane, {}).setdefault(source, _Counts())
        own.add(accepted, refused, LANE_MEMORY)
        self._all.setdefault(source, _Counts()).add(accepted, refused, ALL_MEMORY)

    def fade(self, lane: int, source: str, untried_from: int) -> None:
        """A window passed in which the lane drafted fewer than `untried_from` + 1 tokens from `source`."""
        own = self._lanes.get(lane, {}).get(source)
        if own is not None:
            own.fade(untried_from, FADING)

    def fade_all(self, source: str, untried_from: int) -> None:
        """A window passed in which no lane drafted deeper than `untried_from` tokens from `source`."""
        every = self._all.get(source)
        if every is not None:
            every.fade(untried_from, FADING)

    def leave(self, lane: int) -> None:
        """The lane is gone; what it taught about all lanes stays."""
        self._lanes.pop(lane, None)
