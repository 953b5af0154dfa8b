"""How many prompt tokens the next window reads, and whose. Pure.

Shortest remaining first (Schrage, 1968: it minimizes the mean time to the first token), with a bound: a prompt that has
been passed by as many rows as it had to read itself gets half of every window's prompt rows from then on.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

SMALLEST_CHUNK = 8
FIRST_CHUNK = 32
GROWTH = 4
LARGEST_CHUNK = 8192
QUICK_S = 0.1
SLOW_S = 1.0
EFFICIENT = 0.98
TOLERABLE = 0.9
LEAST_PASSED = 256


@dataclass(frozen=True, slots=True)
class Reader:
    """A lane whose prompt waits: `wanted` rows to the next point where it has to pause, `remaining` to its end."""

    lane: int
    wanted: int
    remaining: int


class Passing:
    """Who has been passed by whom: rows given to later readers while an earlier one waited."""

    def __init__(self) -> None:
        self._asked: dict[int, int] = {}
        self._passed: dict[int, int] = {}

    def share_out(self, readers: Sequence[Reader], rows: int) -> dict[int, int]:
        """Rows a lane, of `rows` >= 1 for readers in order of arrival: all of them are used while any is wanted."""
        left = rows
        given: dict[int, int] = {}
        for reader in readers:
            self._asked.setdefault(reader.lane, reader.remaining)
        aged = next((r for r in readers if self._passed.get(r.lane, 0) >= self._patience(r.lane)), None)
        if aged is not None:
            given[aged.lane] = min(aged.wanted, max(1, rows // 2))
            left -= given[aged.lane]
        for reader in sorted(readers, key=lambda r: r.remaining):
            more = min(reader.wanted - given.get(reader.lane, 0), left)
            if more > 0:
                given[reader.lane] = given.get(reader.lane, 0) + more
                left -= more
        later = 0
        for reader in reversed(readers):
            mine = given.get(reader.lane, 0)
            if mine < reader.wanted and later:
                self._passed[reader.lane] = self._passed.get(reader.lane, 0) + later
            later += mine
        return given

    def leave(self, lane: int) -> None:
        """The lane reads no more."""
        self._asked.pop(lane, None)
        self._passed.pop(lane, None)

    def _patience(self, lane: int) -> int:
        return max(self._asked[lane], LEAST_PASSED)


def chunk_rows(
    limit: int,
    price: Callable[[int], float],
    *,
    beside_s: float,
    alone: Callable[[int], float],
    share: float,
) -> int:
    """How many of `limit` >= 1 prompt rows a window takes.

    `price(n)` is the window's whole price with n of them, `beside_s` the part of its decoding lanes (0: none), and
    `alone(n)` that of a window with nothing else. Windows stay within SLOW_S, and within QUICK_S where that costs
    little. Beside decoding lanes as many rows as leave decoding its `share` (seconds of decoding a second of reading).
    Either is left for a number that is read as efficiently as by the best window alone, if it is not.
    """
    least = min(limit, SMALLEST_CHUNK)
    hard = max(largest_below(limit, price, SLOW_S), least)
    soft = max(largest_below(hard, price, QUICK_S), least)
    target = soft
    if beside_s:
        target = hard if not share else largest_below(hard, lambda n: price(n) - beside_s, beside_s / share)
    sizes = _sizes(hard, soft, target)
    best = min(alone(n) / n for n in sizes)
    efficient = [n for n in sizes if price(n) - beside_s <= n * best / EFFICIENT]
    if not efficient or efficient[0] > soft:
        tolerable = [n for n in sizes if n >= soft and price(n) - beside_s <= n * best / TOLERABLE]
        return tolerable[0] if tolerable else min(sizes, key=lambda n: (price(n) - beside_s) / n)
    return max((n for n in efficient if n <= target), default=efficient[0])


def largest_below(limit: int, price: Callable[[int], float], bound: float) -> int:
    """The largest n of 0 .. `limit` whose price, which grows with n, is at most `bound`; 0 if none is."""
    if price(limit) <= bound:
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        if price(middle) <= bound:
            low = middle
        else:
            high = middle
    return low


def _sizes(most: int, *others: int) -> Sequence[int]:
    """Chunks to choose from, ascending: powers of two, the most, and `others`."""
    sizes = {most, *(n for n in others if 0 < n < most)}
    size = SMALLEST_CHUNK
    while size < most:
        sizes.add(size)
        size *= 2
    return sorted(sizes)

