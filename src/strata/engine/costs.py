"""What a window costs, learned while serving: seconds as a sum of non-negative prices. Pure: it is told every duration.

Least squares with exponential forgetting and a weak prior (a ridge towards the usual proportions of the prices), solved
by block principal pivoting (Portugal, Judice and Vicente, A Comparison of Block Pivoting and Interior-Point Algorithms
for Linear Least Squares Problems with Nonnegative Variables, 1994). Errors are relative, so that a window of one row
counts as much as a window of thousands. Rows are priced in intervals, so any growing, piecewise linear cost can be
learned.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

REACH_UNIT = 1024
MEMORY = 0.98
FADING = 0.9995
PRIOR_WEIGHT = 0.001
LEARNING_WINDOWS = 16
MOST_UNFITTED = 64
REFIT_S = 0.05
PIVOTS = 10
REGIME_WINDOWS = 3
CALMEST = 0.1
FAMILIAR = 3
NEW_LIMIT = 0.5
PROMPT_LIMIT = 0.5
DOUBT = 0.02
LARGEST_WEIGHT = 1e9
# Short windows come by the hundred a second: once they are known, one in four is looked at.
SHORT_S = 0.01
SHORT_KNOWN = 256
SHORT_EVERY = 4
LEAST_PRICE = 0.01  # of the prior: a window is never free
GUESS_S = 0.01

# Prices relative to the fixed price 1, believed until measured: optimistic, so that sharing and drafts are tried.
_SHAPE = (1.0, 0.15, 0.1, 0.05, 0.03, 0.02, 0.02, 0.1, 0.03, 0.002)


@dataclass(frozen=True, slots=True)
class Work:
    """What a window does, by the things that cost time.

    `rows` of `lanes` conversations, of which `drawn` need logits; the MTP block's calls: `steps` deep in all for
    `drafted` rows; `reach` the sum over rows of the tokens before each. `amounts` are further costs by name (experts
    read, bytes from disk), where they were counted.
    """

    rows: int
    lanes: int = 1
    drawn: int = 0
    steps: int = 0
    drafted: int = 0
    reach: int = 0
    amounts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Amount:
    """A further cost: its name in `Work.amounts`, its price before any measurement (relative to the fixed price of a
    window, 1), and how much of it a window of n rows is expected to need."""

    name: str
    prior: float
    expected: Callable[[int], float]


class DistinctExperts:
    """How many distinct experts a window of n rows needs: `chosen` x n^growth, growth learned (0 shared, 1 apart)."""

    def __init__(self, chosen: float) -> None:
        self.chosen = chosen
        self.growth = 0.9

    def expected(self, rows: int) -> float:
        return self.chosen * float(rows) ** self.growth if rows > 0 else 0.0

    def observe(self, rows: int, distinct: float) -> None:
        """A window of `rows` used `distinct` experts (summed over layers as `chosen` is)."""
        if rows > 1 and distinct > 0:
            seen = math.log(max(distinct / self.chosen, 1.0)) / math.log(rows)
            self.growth += 0.05 * (min(seen, 1.0) - self.growth)


class CostModel:
    """The prices of a window, and what they say about any other window.

    Readers use `seconds(work)`, or the parts of it: `rows_seconds(n)` (fixed price, rows, expected amounts) and the
    prices `drawn`, `lane`, `step`, `drafted` and `reach` (a unit each, seconds).
    """

    def __init__(self, amounts: Sequence[Amount] = ()) -> None:
        self.amounts = tuple(amounts)
        self.windows = 0
        self._told = 0
        self._shape = [*_SHAPE, *(a.prior for a in self.amounts)]
        size = len(self._shape)
        # A memory for each kind of window: thousands of small ones must not erase what large ones cost.
        self._kinds: dict[tuple[int, bool, bool], _Evidence] = {}
        self._theta: Floats = np.full(size, GUESS_S)
        self._ratios: deque[float] = deque(maxlen=31)
        self._pending, self._pending_s = 0, 0.0
        self._spread = 0.3
        self._odd = 0
        self._publish()

    def seconds(self, work: Work) -> float:
        """The expected duration of a window."""
        rest = 0.0
        for at, amount in enumerate(self.amounts, len(_SHAPE)):
            counted = work.amounts.get(amount.name)
            if counted is not None:
                rest += self._prices[at] * (counted - amount.expected(work.rows))
        return (
            self.rows_seconds(work.rows)
            + self.drawn * work.drawn
            + self.lane * work.lanes
            + self.step * work.steps
            + self.drafted * work.drafted
            + self.reach * work.reach
            + rest
        )

    def rows_seconds(self, rows: float) -> float:
        """The fixed price, that of `rows` rows (in between, if it is an expected number), and the further costs
        expected of them; 0 for no rows."""
        whole = int(rows)
        if whole != rows:
            low = self.rows_seconds(whole)
            return low + (rows - whole) * (self.rows_seconds(whole + 1) - low)
        if whole <= 0:
            return 0.0
        rows = whole
        known = self._memo.get(rows)
        if known is None:
            known = self._prices[0]
            for at, part in enumerate(_intervals(rows), 1):
                known += self._prices[at] * part
            for at, amount in enumerate(self.amounts, len(_SHAPE)):
                known += self._prices[at] * amount.expected(rows)
            self._memo[rows] = known
        return known

    def observe(self, work: Work, seconds: float) -> None:
        """A window of `work` took `seconds`. A stall counts as a slow window only; a lasting change is learned fast."""
        if not (math.isfinite(seconds) and seconds > 0 and work.rows > 0):
            return
        self._told += 1
        if seconds < SHORT_S and self.windows > SHORT_KNOWN and self._told % SHORT_EVERY:
            return
        expected = max(self.seconds(work), 1e-9)
        kind = (work.rows.bit_length(), work.steps > 0, work.drawn < work.rows)
        evidence = self._kinds.get(kind)
        if evidence is None:
            evidence = self._kinds[kind] = _Evidence(len(self._shape))
        seconds, trust = self._tamed(evidence, seconds, expected, reads=kind[2])
        self.windows += 1
        evidence.last = self.windows
        row = self._row(work)
        self._ratios.append(seconds / sum(row))
        # The weight 1/(expected * seconds) makes errors relative, and the slow windows of a cold start light.
        evidence.add(row, seconds, trust / (expected * seconds))
        self._pending += 1
        self._pending_s += seconds
        if self._pending_s >= REFIT_S or self._pending >= min(1 + self.windows // LEARNING_WINDOWS, MOST_UNFITTED):
            self._refit()

    def _tamed(self, kind: "_Evidence", seconds: float, expected: float, *, reads: bool) -> tuple[float, float]:
        """A duration drawn to the edge of what is usual (Huber's clipping), and how far it is trusted.

        Where all rows decode, a surprise upwards is hardly believed before windows of that kind were seen a few times:
        sharing or drafts that seem dear are not tried again soon. Prompts come again whatever they seem to cost. Odd
        ones of a kind in a row are a change; odd windows of all kinds in a row make all that was seen older.
        """
        kind.seen += 1
        if not self.windows:
            return seconds, 1.0
        error = math.log(seconds / expected)
        if kind.seen < FAMILIAR or self.windows < LEARNING_WINDOWS:
            if error <= NEW_LIMIT or reads:
                return seconds, 1.0
            return expected * math.exp(min(error, 2 * NEW_LIMIT)), DOUBT if kind.seen < FAMILIAR else 1.0
        limit = max(PROMPT_LIMIT if reads else CALMEST, 4 * self._spread)
        self._spread += 0.03 * (min(abs(error), limit) - self._spread)
        if abs(error) <= limit:
            kind.odd = self._odd = 0
            return seconds, 1.0
        side = 1 if error > 0 else -1
        kind.odd = kind.odd + side if kind.odd * side > 0 else side
        self._odd = self._odd + side if self._odd * side > 0 else side
        if max(abs(kind.odd), abs(self._odd) - 2) < REGIME_WINDOWS:
            return expected * math.exp(side * limit), 1.0
        kind.weight *= 4.0
        if abs(self._odd) - 2 >= REGIME_WINDOWS:
            for every in self._kinds.values():
                every.weight *= 1.5
        return seconds, 1.0

    def _row(self, work: Work) -> list[float]:
        """The window in units of the prior, so that all prices are of one size."""
        counts = [1.0, *_intervals(work.rows), work.drawn, work.lanes, work.steps, work.drafted]
        counts.append(work.reach / REACH_UNIT)
        for amount in self.amounts:
            counted = work.amounts.get(amount.name)
            counts.append(amount.expected(work.rows) if counted is None else counted)
        return [count * shape for count, shape in zip(counts, self._shape, strict=True)]

    def _refit(self) -> None:
        self._pending, self._pending_s = 0, 0.0
        scale = median(self._ratios)
        size = len(self._theta)
        a, b = np.zeros((size, size)), np.zeros(size)
        for kind in self._kinds.values():
            share = FADING ** (self.windows - kind.last) / kind.weight
            a += share * kind.a
            b += share * kind.b
        # Relative to the price itself, so that a price far from its prior is not held back by it.
        prior = PRIOR_WEIGHT / np.maximum(self._theta, scale) ** 2
        a[np.diag_indices(size)] += prior
        self._theta = _non_negative(a, b + prior * scale, LEAST_PRICE * scale)
        self._publish()

    def _publish(self) -> None:
        self._prices = [float(t) * s for t, s in zip(self._theta, self._shape, strict=True)]
        _, _, _, _, _, self.drawn, self.lane, self.step, self.drafted, reach = self._prices[: len(_SHAPE)]
        self.reach = reach / REACH_UNIT
        self._memo: dict[int, float] = {}


class _Evidence:
    """The normal equations of the windows of one kind, older ones fading: `a` x prices = `b`, both times `weight`."""

    def __init__(self, size: int) -> None:
        self.a = np.zeros((size, size))
        self.b = np.zeros(size)
        self.weight = 1.0
        self.seen = 0
        self.last = 0
        self.odd = 0

    def add(self, row: Sequence[float], seconds: float, weight: float) -> None:
        self.weight /= MEMORY
        scaled = np.array(row) * (weight * self.weight)
        self.a += np.multiply.outer(scaled, row)
        self.b += scaled * seconds
        if self.weight > LARGEST_WEIGHT:
            self.a /= self.weight
            self.b /= self.weight
            self.weight = 1.0


def _non_negative(a: Floats, b: Floats, least: float) -> Floats:
    """The x >= `least` that minimizes x'ax/2 - b'x, for a positive definite `a`."""
    free = np.ones(len(b), dtype=bool)
    x = np.full(len(b), least)
    for _ in range(PIVOTS):
        x[~free] = least
        x[free] = np.linalg.solve(a[np.ix_(free, free)], b[free] - least * a[np.ix_(free, ~free)].sum(axis=1))
        wrong = np.where(free, x < least, a @ x < b)
        if not wrong.any():
            break
        free ^= wrong
    bounded: Floats = np.maximum(x, least)
    return bounded


def _intervals(rows: int) -> tuple[int, int, int, int]:
    """How many rows lie between each two knots: 1 to 4, to 16, to 64, beyond."""
    if rows <= 4:
        return rows - 1, 0, 0, 0
    if rows <= 16:
        return 3, rows - 4, 0, 0
    return 3, 12, min(rows, 64) - 16, max(0, rows - 64)
