"""Whether drafts pay while several lanes decode: windows with them against windows without, as measured. Pure.

Prices predict windows that nobody has computed yet, and a price that is a little wrong keeps drafts whose rows cost
more than they earn. So tokens a second of both kinds of windows are remembered for every number of decoding lanes, and
a source of drafts that fell short is left alone for a while: each time twice as long, then tried again.
"""

import math
from dataclasses import dataclass, field

from strata.engine.acceptance import MTP, lookup_source
from strata.engine.lookup import FORCED

MEMORY = 0.95
KNOWN = 8.0
"""Windows of either kind before they are compared (decayed: at most 1 / (1 - MEMORY))."""
FAR = 0.5
FIRST_PAUSE, LONGEST_PAUSE = 64, 4096
OTHER = "lookup"
_FORCED = lookup_source(FORCED)


def kind_of(source: str) -> str:
    """What is judged together: the MTP block's drafts, those from histories, and tokens that a grammar forces."""
    return source if source in (MTP, _FORCED) else OTHER


@dataclass(slots=True)
class _Rate:
    """The decayed mean of log(tokens a second); a window far from it counts as one at FAR."""

    seen: float = 0.0
    total: float = 0.0

    def add(self, rate: float) -> None:
        log = math.log(rate)
        if self.seen >= KNOWN:
            log = min(max(log, self.mean - FAR), self.mean + FAR)
        self.seen = self.seen * MEMORY + 1.0
        self.total = self.total * MEMORY + log

    @property
    def mean(self) -> float:
        return self.total / self.seen


@dataclass(slots=True)
class _Source:
    rate: _Rate = field(default_factory=_Rate)
    paused: int = 0
    pause: int = FIRST_PAUSE


class Company:
    """What drafts earned in company, by the number of decoding lanes."""

    def __init__(self) -> None:
        self._plain: dict[int, _Rate] = {}
        self._sources: dict[tuple[int, str], _Source] = {}

    def bound(self, lanes: int, source: str, drafts: int) -> int:
        """Of `drafts` from `source` so many as a lane may have while `lanes` decode: none during a pause in company."""
        known = self._sources.get((lanes, kind_of(source)))
        return 0 if known is not None and known.paused else drafts

    def observe(self, lanes: int, sources: set[str], tokens: int, seconds: float) -> None:
        """A window without prompt rows, while `lanes` decoded, drew `tokens`; `sources`: those of its drafts."""
        if lanes < 2 or tokens < 1 or seconds <= 0:
            return
        kinds = {kind_of(source) for source in sources}
        for (number, _), one in self._sources.items():
            if number == lanes and one.paused:
                one.paused -= 1
        plain = self._plain.setdefault(lanes, _Rate())
        if not kinds:
            plain.add(tokens / seconds)
        for kind in sorted(kinds):
            one = self._sources.setdefault((lanes, kind), _Source())
            if one.paused:
                continue
            one.rate.add(tokens / seconds)
            if plain.seen < KNOWN or one.rate.seen < KNOWN:
                continue
            if one.rate.mean < plain.mean:
                one.paused, one.pause = one.pause, min(2 * one.pause, LONGEST_PAUSE)
                one.rate = _Rate()
            else:
                one.pause = FIRST_PAUSE
