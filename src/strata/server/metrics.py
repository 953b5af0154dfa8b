"""What happens at the engine, counted as it happens: requests that run, that wait, that have ended. No text is kept."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable

from strata.engine.protocol import Gen, PoolState, Progress, Report, Token
from strata.server.rates import Histogram, History, Rate
from strata.server.records import CURRENT, Generation, Marks, Phase, Trace

KEPT = 500
"""Requests that are remembered after their end."""
BUCKETS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 1920, 2560,
)  # fmt: skip
"""Upper bounds of the histograms, in seconds."""


class Totals:
    """Sums since the server began. Times in seconds."""

    def __init__(self) -> None:
        self.since = time.time()
        self.statuses: Counter[int] = Counter()
        self.finishes: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.reused = 0
        self.prompt_read = 0
        self.output_tokens = 0
        self.prompt_s = 0.0
        self.decode_s = 0.0
        self.drafts_offered = 0
        self.drafts_accepted = 0
        self.expert_hits = 0
        self.expert_lookups = 0

    def add(self, one: Generation) -> None:
        """A generation that has ended."""
        self.finishes[one.finish or "error"] += 1
        done = one.done
        if done is None:
            return
        self.prompt_tokens += done.prompt
        self.reused += one.reused
        self.prompt_s += done.prompt_ms / 1000
        self.decode_s += done.decode_ms / 1000
        self.drafts_offered += done.drafts_offered
        self.drafts_accepted += done.drafts_accepted
        self.expert_hits += done.hits
        self.expert_lookups += done.lookups


class Metrics:
    """The engine's requests as they come and go."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.marks = Marks()
        self.totals = Totals()
        self.pool: PoolState | None = None
        self.first_token = Histogram(BUCKETS)
        self.between_tokens = Histogram(BUCKETS)
        self.whole = Histogram(BUCKETS)
        self.rate = Rate(clock())
        self.ended: deque[Trace] = deque(maxlen=KEPT)
        self.last: Generation | None = None
        """The last generation that the engine finished."""
        self.last_asked: float | None = None
        """When the last generation was asked for (Unix)."""
        self._slots: list[Generation | None] = []
        self._waiting: dict[Generation, None] = {}
        self.history = History(clock(), self._levels)

    @property
    def running(self) -> list[Generation]:
        """Generations that the engine works on, by slot."""
        return [one for one in self._slots if one is not None and one.began is not None]

    @property
    def waiting(self) -> list[Generation]:
        """Generations that wait for a place, and those that the engine has but has not begun; the oldest first."""
        return [*(one for one in self._slots if one is not None and one.began is None), *self._waiting]

    def arrive(self, command: Gen) -> Generation:
        """A generation asks for a place at the engine."""
        now, self.last_asked = self.clock(), time.time()
        one = Generation(command, self.marks, CURRENT.get(), now)
        if one.trace is not None:
            one.trace.generations.append(one)
        self._waiting[one] = None
        self.history.note(now)
        return one

    def send(self, one: Generation, *, begins: bool) -> None:
        """The engine has been given it; `begins`: without a queue of the engine's own, so that it has begun."""
        now = self.clock()
        self._waiting.pop(one, None)
        free = next((index for index, other in enumerate(self._slots) if other is None), len(self._slots))
        if free == len(self._slots):
            self._slots.append(None)
        self._slots[free], one.slot = one, free
        if begins:
            one.begin(now)
        self.history.note(now)

    def take(self, one: Generation, report: Report) -> None:
        """A line of the engine about a generation."""
        now = self.clock()
        if isinstance(report, Token):
            if one.first is None:
                self.first_token.observe(now - one.asked)
            else:
                self.between_tokens.observe(now - one.last)
            self.totals.output_tokens += 1
            self.rate.add(now)
            self.history.add("tok_s", now, 1)
        before, began = one.reached, one.began
        one.take(report, now)
        if isinstance(report, Progress) and one.reached > before:
            self.totals.prompt_read += one.reached - before
            self.history.add("prompt_tok_s", now, one.reached - before)
        if one.began is not began:
            self.history.note(now)

    def end(self, one: Generation, finish: str, error: str | None = None) -> None:
        """It is over: at the engine, or before it had a place there."""
        if one.ended is not None:
            return
        one.ended, one.finish, one.error, one.phase = self.clock(), finish, error, Phase.ENDED
        self._waiting.pop(one, None)
        if one.slot >= 0:
            self._slots[one.slot] = None
            while self._slots and self._slots[-1] is None:
                self._slots.pop()
        self.totals.add(one)
        self.whole.observe(one.ended - one.asked)
        if one.done is not None:
            self.last = one
        self.history.note(one.ended)

    def take_pool(self, state: PoolState) -> None:
        """The KV pool as the engine says it is now."""
        self.pool = state
        self.history.note(self.clock())

    def close(self, trace: Trace) -> None:
        """An HTTP request has its answer, or its client has left."""
        trace.ended = self.clock()
        if trace.generations or (trace.api and trace.method == "POST"):
            self.totals.statuses[trace.status] += 1
            self.ended.append(trace)

    def recent(self, count: int = KEPT) -> Iterable[Trace]:
        """The last requests that have ended, the latest first."""
        traces = list(self.ended)[-count:]
        traces.reverse()
        return traces

    def _levels(self) -> dict[str, float]:
        pool = self.pool
        used = pool.cells - pool.free if pool is not None else 0
        return {"running": len(self.running), "waiting": len(self.waiting), "pool_used": used}
