"""A discrete-event simulation of an engine around the scheduler: a clock of its own, worlds of costs, arrivals, texts.

A text is fixed before anything is scheduled: whether the draft for position p at depth d stands depends on (lane, p, d)
alone, as it does in an engine whose drafts change no token. So two policies serve the same work.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from strata.engine.acceptance import MTP
from strata.engine.costs import Work
from strata.engine.lookup import NOTHING, Proposal
from strata.engine.scheduler import Demand, Scheduler, Turn, Verdict, Window

MASK = 2**64 - 1


def uniform(*values: int) -> float:
    """A hash of integers as a number of [0, 1): splitmix64 over them."""
    state = 0
    for value in values:
        state = (state + value * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
        state ^= state >> 31
    return state / 2**64


@dataclass(frozen=True)
class Job:
    """A conversation: when it comes, its prompt and answer in tokens, how likely its drafts stand, when it is given up,
    where its prompt has to pause, and the share of positions at which its history holds the rest of a passage."""

    prompt: int
    answer: int
    arrival: float = 0.0
    accept: float = 0.6
    leaves: float = math.inf
    marks: tuple[int, ...] = ()
    repeats: float = 0.0
    lookup_accept: float = 0.9

    def stands(self, number: int, position: int, depth: int, source: str) -> bool:
        chance = self.accept * 0.95 ** (depth - 1) if source == MTP else self.lookup_accept
        return uniform(number, position, depth, source == MTP) < chance

    def found(self, number: int, position: int) -> Proposal:
        passage = uniform(number, position // 24, 7) < self.repeats
        return Proposal(tuple(range(16)), 8) if passage else NOTHING


@dataclass(frozen=True)
class World:
    """`price(work, clock)`: the true seconds of a window; `noise` their relative spread, `stall` (chance, factor)."""

    name: str
    price: Callable[[Work, float], float]
    noise: float = 0.0
    stall: tuple[float, float] = (0.0, 1.0)

    def seconds(self, work: Work, clock: float, window: int) -> tuple[float, float]:
        """How long a window takes, and how much of it is a stall."""
        seconds = self.price(work, clock) * (1 + self.noise * (2 * uniform(window, 1) - 1))
        stalled = (self.stall[1] - 1) * seconds if uniform(window, 2) < self.stall[0] else 0.0
        return seconds + stalled, stalled


@dataclass
class Served:
    """What became of a job: times of its first token and its end, its tokens, and its turns by window."""

    held: int = 0
    known: int = 0
    first: float = math.nan
    end: float = math.nan
    turns: list[int] = field(default_factory=list)
    reads: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class Trace:
    served: list[Served]
    clock: float
    windows: list[tuple[float, float, Window, list[Demand]]]
    stalled: float = 0.0

    @property
    def drawn(self) -> int:
        return sum(turn.draws for _, _, window, _ in self.windows for turn in window.turns)


def simulate(
    jobs: Sequence[Job], world: World, scheduler: Scheduler, *, most_windows: int = 200_000, keep: bool = True
) -> Trace:
    """Serve all jobs to their ends; AssertionError if the scheduler does what no engine could, or stands still."""
    served = [Served(known=job.prompt) for job in jobs]
    clock, number, stalled = 0.0, 0, 0.0
    windows: list[tuple[float, float, Window, list[Demand]]] = []
    open_jobs = set(range(len(jobs)))
    while open_jobs:
        for n in sorted(open_jobs):
            if jobs[n].leaves <= clock:
                served[n].end = clock
                open_jobs.discard(n)
                scheduler.leave(n)
        here = sorted((n for n in open_jobs if jobs[n].arrival <= clock), key=lambda n: (jobs[n].arrival, n))
        if not here:
            clock = min((jobs[n].arrival for n in open_jobs), default=clock)
            continue
        number += 1
        assert number <= most_windows, "the scheduler stands still"
        demands = [_demand(n, jobs[n], served[n]) for n in here]
        window = scheduler.window(demands)
        assert window.turns, "lanes wait and no row is computed"
        took, stall = world.seconds(window.work, clock, number)
        stalled += stall
        if keep:
            windows.append((clock, took, window, demands))
        clock += took
        verdicts = _apply(window.turns, dict(zip(here, demands, strict=True)), jobs, served, clock, number)
        scheduler.measured(window, took, verdicts)
        for n in here:
            if served[n].known >= jobs[n].prompt + jobs[n].answer:
                served[n].end = clock
                open_jobs.discard(n)
                scheduler.leave(n)
    return Trace(served, clock, windows, stalled)


def _demand(n: int, job: Job, state: Served) -> Demand:
    pause = min((mark for mark in job.marks if state.held < mark < job.prompt), default=state.known)
    reading = state.held < job.prompt
    left = job.prompt + job.answer - state.known
    found = NOTHING if reading else job.found(n, state.known)
    return Demand(n, state.held, state.known, pause, reading, room=max(0, left - 1), mtp=True, found=found)


def _apply(
    turns: Sequence[Turn],
    demands: dict[int, Demand],
    jobs: Sequence[Job],
    served: list[Served],
    clock: float,
    window: int,
) -> dict[int, Verdict]:
    verdicts = {}
    assert len({turn.lane for turn in turns}) == len(turns), "a lane has two turns in a window"
    for turn in turns:
        demand, job, state = demands[turn.lane], jobs[turn.lane], served[turn.lane]
        state.turns.append(window)
        assert 1 <= turn.count <= demand.pause - demand.held, "a turn passes over a pause"
        if demand.reading:
            state.reads.append((window, turn.count))
        state.held += turn.count
        assert turn.draws == (state.held == state.known), "the last known row, and only it, draws"
        assert turn.drafts <= demand.room
        if not turn.draws:
            continue
        accepted = 0
        if turn.drafts:
            assert turn.source is not None
            assert not demand.reading
            assert turn.source == MTP or turn.drafts <= len(demand.found.tokens)
            while accepted < turn.drafts and job.stands(turn.lane, state.known + accepted, accepted + 1, turn.source):
                accepted += 1
            verdicts[turn.lane] = Verdict(accepted, accepted < turn.drafts)
        if math.isnan(state.first):
            state.first = clock
        state.held += accepted
        state.known += accepted + 1
    return verdicts


def serial_seconds(jobs: Sequence[Job], world: World, deepest: int, lookups: bool = False) -> float:
    """The best way to serve one at a time, with hindsight: for each job the best constant depth (and, with `lookups`,
    drafts from history wherever there are some), the best constant chunk; without noise or stalls."""
    clock, slow_s = 0.0, 1.0
    for n, job in enumerate(jobs):
        options = [0, 4, 8, 15] if lookups else [0]
        clock += min(_read(job, world, chunk, clock, slow_s) for chunk in (8, 64, 256, 1024, 4096))
        clock += min(
            _decode(n, job, world, depth, found, clock) for depth in range(deepest + 1) for found in options
        )
    return clock


def _read(job: Job, world: World, chunk: int, clock: float, slow_s: float) -> float:
    begun = clock
    for at in range(0, job.prompt, chunk):
        rows = min(chunk, job.prompt - at)
        took = world.price(Work(rows, 1, int(at + rows == job.prompt), reach=rows * at), clock)
        if took > slow_s and chunk > 8:
            return math.inf
        clock += took
    return clock - begun


def _decode(n: int, job: Job, world: World, depth: int, found: int, clock: float) -> float:
    begun, known, end = clock, job.prompt + 1, job.prompt + job.answer
    while known < end:
        source, drafts = MTP, min(depth, end - known - 1)
        if found and job.found(n, known).tokens:
            source, drafts = "lookup", min(found, end - known - 1)
        accepted = 0
        while accepted < drafts and job.stands(n, known + accepted, accepted + 1, source):
            accepted += 1
        steps = drafts if source == MTP else 0
        rows = 1 + drafts
        clock += world.price(Work(rows, 1, rows, steps=steps, drafted=steps, reach=rows * (known - 1)), clock)
        known += accepted + 1
    return clock - begun
