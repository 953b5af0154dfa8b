"""Which rows the next window computes: lanes' wishes in, turns out. Pure: no tensors, no clock, no memory of its own.

Because a row's result depends on its history alone, nothing decided here changes a token, only when it is computed.
"""

from collections.abc import Iterable
from dataclasses import dataclass

SMALLEST_CHUNK = 16
FIRST_CHUNK = 64
LARGEST_CHUNK = 8192
QUICK_S = 0.5
SLOW_S = 2.0


@dataclass(frozen=True, slots=True)
class Demand:
    """What one lane waits for: `known` tokens are known of which `held` are computed, 0 <= held < known.

    `pause` is where a turn has to end at the latest (held < pause <= known): the state at that point is to be kept.
    """

    lane: int
    held: int
    known: int
    pause: int
    reading: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """The part of one lane in a window: its next `count` tokens. `draws`: the last of them is to give a new token."""

    lane: int
    count: int
    draws: bool


def next_window(demands: Iterable[Demand], chunk: int) -> list[Turn]:
    """The turns of the next window, for demands in order of arrival.

    Every decoding lane takes part with all that it knows (one token), and `chunk` >= 1 prompt tokens are shared out
    among the reading lanes, first come first served: so each window moves every decoding lane and the oldest reader.
    """
    turns: list[Turn] = []
    left = chunk
    for demand in demands:
        wanted = demand.pause - demand.held
        count = min(wanted, left) if demand.reading else wanted
        if demand.reading:
            left -= count
        if count > 0:
            turns.append(Turn(demand.lane, count, draws=demand.held + count == demand.known))
    return turns


def adapted_chunk(chunk: int, rows: int, seconds: float, largest: int = LARGEST_CHUNK) -> int:
    """The chunk after a window of `rows` prompt tokens took `seconds`: windows of 0.5 to 2 s, so that STOP acts soon.

    A window that was quick without being full says nothing about a full one and leaves the chunk as it is.
    """
    if seconds > SLOW_S:
        return max(chunk // 2, SMALLEST_CHUNK)
    if seconds < QUICK_S and rows >= chunk:
        return min(chunk * 2, largest)
    return chunk
