"""What a set of conversations achieved: tokens a second and first tokens, from the times of their lines."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.lanes.client import Engine, Request


@dataclass(frozen=True)
class Outcome:
    """Rates in tokens a second, `first` in seconds from the moment when all conversations were wanted.

    `total` counts the reading of the prompts; `decoding` only the time in which every conversation that is served at
    once decodes (None: there was no such time).
    """

    total: float
    decoding: float | None
    first: tuple[float, ...]
    windows: int = 0
    generated: int = 0
    accepted: int = 0
    offered: int = 0


def together(engine: Engine, prompts: Sequence[Sequence[int]], count: int) -> Outcome:
    """All conversations at once."""
    begun = time.perf_counter()
    requests = [engine.send(prompt, count) for prompt in prompts]
    engine.wait(requests)
    engine.check(requests, count)
    return of(requests, begun, decoding_together(requests))


def one_by_one(engine: Engine, prompts: Sequence[Sequence[int]], count: int) -> Outcome:
    """One conversation after the other; those that wait are wanted since the start."""
    begun = time.perf_counter()
    requests = [engine.answer(prompt, count) for prompt in prompts]
    return of(requests, begun, decoding_in_turn(requests))


def of(requests: Sequence[Request], begun: float, decoding: float | None) -> Outcome:
    """The outcome of requests that have ended."""
    made = sum(r.generated for r in requests)
    accepted = sum(r.accepted for r in requests)
    return Outcome(
        total=made / (max(r.ended or 0.0 for r in requests) - begun),
        decoding=decoding,
        first=tuple(r.times[0] - begun for r in requests),
        # Reading gives the first token; each window after it one token of its own and the drafts that stood.
        windows=made - len(requests) - accepted,
        generated=made,
        accepted=accepted,
        offered=sum(r.offered for r in requests),
    )


def decoding_together(requests: Sequence[Request]) -> float | None:
    """Tokens a second from the last first token to the first end."""
    begin, end = max(r.times[0] for r in requests), min(r.times[-1] for r in requests)
    made = sum(begin < t <= end for r in requests for t in r.times)
    return made / (end - begin) if made and end > begin else None


def decoding_in_turn(requests: Sequence[Request]) -> float | None:
    """Tokens a second of those after each first."""
    seconds = sum(r.times[-1] - r.times[0] for r in requests)
    return sum(len(r.times) - 1 for r in requests) / seconds if seconds > 0 else None
