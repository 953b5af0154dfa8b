"""Random lives of an engine: requests that arrive, edit, stop, crowd the pool, are parked, and engines that restart.

Whatever happens to it, every request's tokens have to be those of its conversation alone (`World.alone`), and after
each window the memory's books have to agree. A schedule is a function of its seed.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from schedule_grammars import Form, Rules

from strata.arithmetic.penalties import Penalties, Recent, penalized
from strata.arithmetic.sampling import Sampling
from strata.engine.channel import Inbox, Order
from strata.engine.constraint import Grammars
from strata.engine.loop import Engine, Limits
from strata.engine.protocol import (
    Err,
    Gen,
    LaneDone,
    LaneErr,
    LaneResume,
    PoolState,
    Report,
    SlotToken,
    parse_command,
)
from strata.engine.scheduler import Policy
from strata.memory import Marking, Memory, MemoryLimits, Origin, ParkingLimits, Sizes
from strata.memory.pool import CHUNK
from strata.model import Segment


class _Starving(Inbox):
    """Asks for more when nothing is left to do."""

    def __init__(self, more: Callable[[], None], between: Callable[[], None]) -> None:
        super().__init__()
        self._more = more
        self._between = between

    def take(self, *, wait: bool) -> tuple[list[Order], bool]:
        self._between()
        if wait and self._orders.empty():
            self._more()
        return super().take(wait=wait)


class World(Protocol):
    """A model, and what its conversations give alone. `turn`: the token that opens a turn; `words`: the others.

    `after`: a token that a grammar may wait for; `forms`: those that are asked for, compiled by `grammars`.
    """

    model: Any
    context: int
    turn: int
    words: Sequence[int]
    after: int
    forms: Sequence[Form]
    grammars: Grammars

    def alone(self, prompt: Sequence[int], count: int, keys: str) -> list[int]:
        """At most `count` tokens after a prompt, by the simplest loop there is."""


@dataclass
class Asked:
    """A request of a schedule and what came of it."""

    prompt: list[int]
    count: int
    keys: str
    tokens: list[int] = field(default_factory=list)
    finish: str | None = None
    resumed: int = 0


class Schedule:
    """One random life of an engine whose client speaks of lanes. `run` raises AssertionError where anything is not as
    it is alone."""

    hello: Sequence[str] = ("LANES",)
    slots = 0

    def __init__(self, world: World, seed: int, directory: Path) -> None:
        self.world = world
        self.rng = random.Random(seed)
        self.seed = seed
        self.now = 0.0
        self.asked: dict[int, Asked] = {}
        self.counts = dict.fromkeys(
            ("requests", "resumed", "cancel", "pool", "refused", "restarts", "unparked", "drafts", "grammars",
             "grammar_drafts"), 0,
        )  # fmt: skip
        rng = self.rng
        self._drafts = rng.choice([0, 1, 2, 4])
        self._left = 0
        self._wall = 0
        self._pool: PoolState | None = None  # as it was told last
        parking = rng.choice([None, "ram", "disk"])
        self._limits = MemoryLimits(
            rng.choice([1, 2, 2, 3, 10]) * CHUNK,
            checkpoints=rng.choice([0, 1, 3, 6]),
            state_bytes=rng.choice([5, 30, 1000]) * 100,
            conversations=rng.choice([1, 4, 32]),
            parking=ParkingLimits()
            if parking is None
            else ParkingLimits(
                ram_bytes=rng.choice([20_000, 1 << 40]),
                slots=rng.choice([1, 4]),
                min_free_bytes=0,
                directory=directory if parking == "disk" else None,
                disk_bytes=rng.choice([100_000, 1 << 40]),
            ),
        )
        policy = Policy(
            decode_share=rng.choice([0.0, 0.5, 2.0]),
            mtp_depth=self._drafts,
            lookup_depth=rng.choice([0, 5]),
            chunk=rng.choice([1, 3, 17, 64, None]),
        )
        marking = Marking(world.turn, rng.choice([0, 16, 50]), rng.choice([0, 10]))
        self._engine_limits = Limits(
            world.context, tuple(world.model.eos_ids), marking, lanes=rng.choice([1, 3, 40]),
            checkpoints=self._limits.checkpoints, policy=policy,
        )  # fmt: skip
        self.memory = self._remember()

    def run(self, rounds: int = 4) -> None:
        """Some requests at a time, more while they run; between rounds the engine may end, or be killed."""
        for _ in range(rounds):
            inbox = self._inbox = _Starving(self._more, self._told)
            engine = Engine(
                self.world.model, self.memory, self._engine_limits, self._report, clock=lambda: self.now,
                grammars=self.world.grammars,
            )  # fmt: skip
            self.world.model.before = self._window
            self._left, self._pool = self.rng.randint(0, 6), None
            for line in self.hello:
                inbox.put(line)
            for _ in range(self.rng.randint(1, 6)):
                self._ask()
            engine.run(inbox)
            self.memory.check()
            assert all(one.finish is not None for one in self.asked.values()), "a request has no end"
            if self.rng.random() < 0.3:
                self.counts["restarts"] += 1
                if self.rng.random() < 0.7:
                    self.memory.close()
                self.memory = self._remember()
        self.memory.close()
        self._compare()

    def _remember(self) -> "Memory[Any]":
        drafts = self._drafts > 0
        memory: Memory[Any] = Memory(
            self._limits, Sizes(1000, 100), Origin("model", "bf16", "test"),
            lambda: self.world.model.new_state(drafts), available=lambda: 1 << 62,
        )  # fmt: skip
        states = memory._parking.states

        def counted(parked: Any) -> Any:
            self.counts["unparked"] += 1
            return states(parked)

        memory._parking.states = counted  # type: ignore[method-assign]
        return memory

    def _window(self, rows: int) -> None:
        """Called at every window: time passes, and the world goes on."""
        self.now += 0.001 * (5 + rows)
        self._wall += 1
        if self._wall % 7 == 0:
            self.memory.check()
        if self._left and self.rng.random() < 0.2:
            self._more()
        if self.rng.random() < 0.05:
            self._inbox.put(self._wish())

    def _wish(self) -> str:
        """A line that stops something, or nothing."""
        return f"BSTOP {self.rng.choice([*self.asked, 999_999])}"

    def _more(self) -> None:
        """One more request, or none any more."""
        if not self._left:
            self._inbox.put("QUIT")
            return
        self._left -= 1
        self._ask()

    def _ask(self) -> None:
        """One more request."""
        one = self._new()
        lane = len(self.asked) - 1
        self._inbox.put(f"BGEN {lane} {one.count} {one.keys} {','.join(map(str, one.prompt))}")

    def _new(self) -> Asked:
        """A request, among those that were asked from now on."""
        rng = self.rng
        prompt = self._prompt()
        count = rng.choice([1, 2, 5, 12, 40, 300])
        keys = [rng.choice(["", "temperature=0.8 seed=5", "temperature=1.5 top_k=0 top_p=0.9 seed=6", ""])]
        if rng.random() < 0.2:
            keys.append("penalty_last_n=9 penalty_repeat=1.2 penalty_freq=0.1")
        elif rng.random() < 0.1:
            keys.append("penalty_last_n=-1 penalty_present=0.3")
        if rng.random() < 0.2:
            keys.append("ckpt=0")
        if rng.random() < 0.1:
            keys.append(f"pin={rng.randint(1, len(prompt))}")
        if rng.random() < 0.1:
            keys.append(f"stop_ids={','.join(map(str, rng.sample(list(self.world.words), 3)))}")
        keys.append(self._limited())
        one = Asked(prompt, count, " ".join(keys))
        self.asked[len(self.asked)] = one
        self.counts["requests"] += 1
        return one

    def _limited(self) -> str:
        """Keys that forbid tokens or make them likelier: a grammar, or biases; mostly none."""
        rng, words, after = self.rng, list(self.world.words), self.world.after
        if rng.random() < 0.7:
            bias = [(token, rng.choice([-math.inf, -2.0, 3.5])) for token in rng.sample(words, 4)]
            bias += [(token, -math.inf) for token in self.world.model.eos_ids if rng.random() < 0.5]
            return keys_of(logit_bias=tuple(bias)) if rng.random() < 0.3 else ""
        grammar = rng.choice(self.world.forms).grammar
        if rng.random() < 0.5:
            return keys_of(grammar=grammar, logit_bias=((rng.choice(words), 1.5),))
        likely = ((after, rng.choice([4.0, 20.0])),)
        return keys_of(
            grammar=grammar, grammar_after=after, grammar_optional=rng.random() < 0.5, logit_bias=likely
        )  # fmt: skip

    def _prompt(self) -> list[int]:
        """A fresh one, a follow-up, an edit of an earlier one, or the same again."""
        rng, most = self.rng, self.world.context - 10
        told = [one for one in self.asked.values() if one.finish is not None]
        fresh = [self.world.turn, *rng.choices(self.world.words, k=rng.choice([1, 5, 30, most // 3]))]
        system = [self.world.turn, *self.world.words[:20]]
        if not told or rng.random() < 0.3:
            return (system + fresh if rng.random() < 0.5 else fresh)[:most]
        one = rng.choice(told)
        whole = one.prompt + one.tokens
        match rng.randrange(4):
            case 0:
                return (whole + fresh)[:most]
            case 1:
                return (one.prompt + fresh)[:most]
            case 2:
                return (whole[: rng.randint(1, len(whole))] + fresh)[:most]
        return one.prompt

    def _report(self, report: Report) -> None:
        match report:
            case SlotToken(lane, token):
                self.asked[lane].tokens.append(token)
            case LaneResume(lane, tokens):
                self.asked[lane].resumed = tokens
                self.counts["resumed"] += tokens > 0
            case LaneDone():
                one = self.asked[report.slot]
                assert one.finish is None, "an end is told twice"
                assert report.generated == len(one.tokens)
                one.finish = report.finish
                self._count(one, report.drafts_accepted)
            case LaneErr(lane, reason):
                assert reason.startswith("KV pool full"), reason
                assert not self.asked[lane].tokens
                self.asked[lane].finish = "refused"
                self.counts["refused"] += 1
            case PoolState():
                self._pool = report
            case Err(reason):
                raise AssertionError(reason)

    def _count(self, one: Asked, drafts: int) -> None:
        self.counts["drafts"] += drafts
        if "grammar=" in one.keys:
            self.counts["grammars"] += bool(one.tokens)
            self.counts["grammar_drafts"] += drafts
        if one.finish in self.counts:
            self.counts[str(one.finish)] += 1

    def _told(self) -> None:
        """Between windows: the pool is as it was told."""
        if self._pool is not None:
            assert astuple(self._pool) == astuple(self.memory.pool_line(self.slots))

    def _compare(self) -> None:
        for lane, one in self.asked.items():
            whole = self.world.alone(one.prompt, one.count, one.keys)
            where = f"seed {self.seed}, request {lane}, resumed from {one.resumed}, {one.finish}, {one.keys!r}"
            if one.finish in ("cancel", "pool", "refused"):
                assert one.tokens == whole[: len(one.tokens)], where
            else:
                assert one.tokens == whole, where


def keys_of(**values: Any) -> str:
    """The keys of a line with these values."""
    return " ".join(Gen(1, (0,), **values).format().split()[2:-1])


def alone(
    model: Any, prompt: Sequence[int], count: int, keys: str, context: int, texts: Sequence[bytes | None]
) -> list[int]:
    """A conversation with a fresh state, one row at a time after its prompt. `texts`: the bytes of every token."""
    request: Any = parse_command(f"GEN {count} {keys} {','.join(map(str, prompt))}")
    sampling = Sampling(request.temperature, request.top_p, request.top_k, request.min_p, request.seed)
    penalties = Penalties(
        request.penalty_last_n, request.penalty_repeat, request.penalty_freq, request.penalty_present,
        dict(request.logit_bias),
    )  # fmt: skip
    rules = None if request.grammar is None else Rules(request, texts, model.eos_ids)
    state, tokens, fresh = model.new_state(), list(prompt), list(prompt)
    while len(tokens) - len(prompt) < count and len(tokens) <= context:
        (row,) = model.forward([Segment(state, fresh, len(fresh) - 1)])
        row = penalized(row, penalties, Recent(request.penalty_last_n, tokens).counts)
        if rules is not None:
            row = np.where(rules.allowed(), row, np.float32(-np.inf))
        fresh = [model.sample(row, sampling, choice=0, position=len(tokens))]
        tokens += fresh
        if fresh[0] in (*model.eos_ids, *request.stop_ids):
            break
        if rules is not None:
            rules.advance(fresh[0])
    return tokens[len(prompt) :]
