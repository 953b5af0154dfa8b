"""Numbers that change while the server runs: rates of the last seconds, a history by the second, histograms."""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

HISTORY_S = 300
RATE_S = 2.0
_SLICES_PER_S = 4


class Rate:
    """How many a second there were in the last RATE_S seconds, in slices of a quarter of a second."""

    __slots__ = ("_counts", "_since")

    def __init__(self, now: float) -> None:
        self._since = now
        self._counts: deque[list[int]] = deque(maxlen=int(RATE_S * _SLICES_PER_S) + 1)

    def add(self, now: float, count: int = 1) -> None:
        """So many more, at this moment."""
        at = int(now * _SLICES_PER_S)
        if self._counts and self._counts[-1][0] == at:
            self._counts[-1][1] += count
        else:
            self._counts.append([at, count])

    def value(self, now: float) -> float:
        """Per second; since the beginning where that is less than RATE_S ago."""
        first = (now - RATE_S) * _SLICES_PER_S
        total = sum(count for at, count in self._counts if at + 1 > first)
        return total / min(RATE_S, max(now - self._since, 1 / _SLICES_PER_S))


class History:
    """Sums and levels of each of the last HISTORY_S seconds. Costs nothing while nothing happens.

    `levels` reads the present levels: what a second without events had is what the last event left.
    """

    SUMS = ("tok_s", "prompt_tok_s")

    def __init__(self, now: float, levels: Callable[[], Mapping[str, float]]) -> None:
        self._levels = levels
        self._second = int(now)
        self._sums = dict.fromkeys(self.SUMS, 0)
        self._kept: Mapping[str, float] = levels()
        self._most = dict(self._kept)
        self._rows: deque[dict[str, float]] = deque(maxlen=HISTORY_S)

    def add(self, name: str, now: float, count: int) -> None:
        """So many tokens, of the kind `name` in SUMS."""
        self._advance(now)
        self._sums[name] += count

    def note(self, now: float) -> None:
        """A level may have changed: of each second its highest level is kept."""
        self._advance(now)
        self._kept = self._levels()
        for name, level in self._kept.items():
            self._most[name] = max(level, self._most.get(name, level))

    def rows(self, now: float, seconds: int = HISTORY_S) -> list[dict[str, float]]:
        """The last whole seconds, the oldest first; at most `seconds` of them, fewer after a short life."""
        self._advance(now)
        return list(self._rows)[-seconds:] if seconds > 0 else []

    def _advance(self, now: float) -> None:
        gap = int(now) - self._second
        if gap <= 0:
            return
        self._rows.append({**self._sums, **self._most})
        self._second = int(now)
        self._sums = dict.fromkeys(self.SUMS, 0)
        self._most = dict(self._kept)
        for _ in range(min(gap - 1, HISTORY_S)):
            self._rows.append({**self._sums, **self._most})


class Histogram:
    """Counts of values by upper bounds, as Prometheus has them."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """One more value."""
        self._counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def cumulative(self) -> list[int]:
        """How many values were at most each bound; the last number is of all."""
        return list(accumulate(self._counts))
