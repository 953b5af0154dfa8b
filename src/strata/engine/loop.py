"""The life of requests: orders, lanes, windows, drawn tokens, reports. `Engine.run` reads like it.

1. Orders come from the inbox and wait for a lane; those on the control lines, for each other too.
2. The memory gives an order's prompt the state to start from; a lane is made of both.
3. The scheduler says what the next window computes of all lanes, and the pool has to have room for it.
4. Drafts are proposed, the model advances the lanes' states, tokens are drawn and drafts judged.
5. Progress and tokens go out; a state at a mark is kept as a checkpoint. Wishes are heeded. Then again from 1.
6. A lane that is done gives its state to the memory, and its last line goes out.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from strata import logs
from strata.engine.channel import Disconnected, Inbox, Order
from strata.engine.constraint import Constraint, Grammars
from strata.engine.lane import Ends, Lane, Phase, check
from strata.engine.lookup import NOTHING
from strata.engine.protocol import NO_SLOT, Err, Gen, LaneDone, LaneErr, PoolState, Report, Vram
from strata.engine.scheduler import Demand, Policy, Scheduler, Turn, Window
from strata.engine.sessions import exchange, vram
from strata.engine.voice import LaneVoice, SlotVoice, Voice
from strata.engine.window import Drawn, compute, draw, propose
from strata.errors import RequestError, StrataError
from strata.memory import MAIN, NOWHERE, Marking, Memory, marks, packed

if TYPE_CHECKING:
    from strata.model import LaneState, Model

log = logs.get("engine")
SHORT_READ = 64
"""A read with so few tokens left does not give way."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine was started with. `slots` of clients that do not speak of lanes; `lanes` at once, of any kind.

    `checkpoints` a conversation (0: none). `tell_pool`: POOL lines for clients that do not speak of lanes too.
    """

    context: int
    eos_ids: tuple[int, ...]
    marking: Marking
    slots: int = 0
    lanes: int = 64
    checkpoints: int = 6
    tell_pool: bool = False
    policy: Policy = field(default_factory=Policy)


@dataclass(eq=False, slots=True)
class Running:
    """A request that has a lane."""

    order: Order
    lane: Lane
    voice: Voice


def _unwatched(what: str) -> AbstractContextManager[None]:
    return nullcontext()


def _clock_seed() -> int:
    return time.time_ns() & (2**64 - 1)


class Engine:
    """Serves the orders of an inbox with one model and one memory."""

    def __init__(
        self,
        model: "Model",
        memory: "Memory[LaneState]",
        limits: Limits,
        emit: Callable[[Report], None],
        *,
        watch: Callable[[str], AbstractContextManager[None]] = _unwatched,
        clock: Callable[[], float] = time.monotonic,
        grammars: Grammars | None = None,
    ) -> None:
        self.model = model
        self.grammars = grammars
        self.memory = memory
        self.limits = limits
        self.scheduler = Scheduler(limits.policy)
        self._emit = emit
        self._watch = watch
        self._clock = clock
        self._ends = Ends(limits.context, frozenset(limits.eos_ids))
        self._waiting: list[Order] = []
        self._running: dict[int, Running] = {}
        self._lanes = False  # whether a client of lanes has spoken
        self._pool: PoolState | None = None
        self._pool_mark = (0, 0, 0)
        self._served = 0

    def run(self, inbox: Inbox) -> None:
        """Serve until the inbox says that it is over and nothing is left. A request's error ends that request only."""
        more = True
        while more or self._running or self._waiting:
            if more:
                orders, more = inbox.take(wait=not (self._running or self._waiting))
                self._waiting += orders
            if inbox.interrupted:
                self._waiting.clear()
            self._start()
            self._heed()
            if self._running:
                self._step()

    def stalled(self, reason: str) -> None:
        """Told by a watch that nothing goes on: the requests in progress end, as far as anybody reads it."""
        for one in list(self._running.values()):
            one.voice.failed(reason)

    # ------------------------------------------------------------------------------------------------- orders

    def _start(self) -> None:
        """Begin every waiting order that may: a lane is left, and the control lines are free if it needs them."""
        taken = any(not one.order.released for one in self._running.values())
        left: list[Order] = []
        for order in self._waiting:
            request = order.request
            full = isinstance(request, Gen) and len(self._running) >= self.limits.lanes
            if full and order.stopped and isinstance(request, Gen) and request.slot is not None and order.lanes:
                order.end()
                self._emit(LaneDone(request.slot, 0, "cancel", 0.0, 0, 0, len(request.ids), 0.0, 0, 0))
                continue
            if full or (taken and not order.lanes):
                left.append(order)
                taken = taken or not order.lanes
                continue
            try:
                self._begin(order)
            except Disconnected:
                raise
            except Exception as error:
                self._refuse(order, error)
            taken = taken or not (order.released or order.lanes)
        self._waiting = left

    def _begin(self, order: Order) -> None:
        request = order.request
        self._lanes = self._lanes or order.lanes
        if isinstance(request, RequestError):
            raise request
        if isinstance(request, Gen):
            self._admit(order, request)
            return
        order.end()
        if isinstance(request, Vram):
            self._emit(vram(self.limits.policy))
        else:
            with self._watch(request.format()):
                self._emit(exchange(request, self.memory, self._clock, lanes=order.lanes))
        self._tell_pool()

    def _admit(self, order: Order, request: Gen) -> None:
        """A lane that starts where the memory lets it start."""
        self._check(order, request)
        if request.skipped:
            log.info("keys of the request that mean nothing here: %s", ", ".join(request.skipped))
        constraint = self._constraint(request)
        place = NOWHERE if order.lanes else MAIN if request.slot is None else request.slot
        prompt = packed(request.ids)
        with self._watch(f"resuming a prompt of {len(prompt)} tokens"):
            admission = self.memory.admit(prompt, keep=request.ckpt, place=place, replaces=not order.lanes)
        kept = {}
        if self.limits.checkpoints:
            marking = self.limits.marking
            kept = marks(
                prompt, admission.reused, request.pin, marking, shared=admission.shared, keep=request.ckpt
            )
        self._served += 1
        lane = Lane(
            self._served, request, admission, self._ends, seed=request.seed or _clock_seed(), marks=kept,
            constraint=constraint,
        )  # fmt: skip
        voice: Voice
        if request.slot is None:
            voice = Voice(self._emit, self._clock, lane)
        elif order.lanes:
            voice = LaneVoice(self._emit, self._clock, lane, request.slot)
        else:
            voice = SlotVoice(self._emit, self._clock, lane, request.slot, self.limits.policy.mtp_depth > 0)
        self._running[lane.number] = Running(order, lane, voice)
        voice.admitted()

    def _constraint(self, request: Gen) -> Constraint | None:
        if request.grammar is None:
            return None
        if self.grammars is None:
            raise RequestError("bad request: grammar: this engine was started without a vocabulary")
        with self._watch(f"compiling a grammar of {len(request.grammar.text)} characters"):
            return self.grammars.constraint(
                request.grammar, request.grammar_after, optional=request.grammar_optional
            )

    def _check(self, order: Order, request: Gen) -> None:
        busy = self._busy
        if order.lanes and request.slot is None:
            raise RequestError("expected: BGEN <lane> <max_new> ...")
        if order.lanes and request.slot in busy:
            raise RequestError(f"lane {request.slot} has a request already")
        if not order.lanes and request.slot is not None:
            free = request.slot < self.limits.slots and request.slot not in busy
            if not free or request.max_new < 1:
                raise RequestError(NO_SLOT)
        check(request, context=self.limits.context, vocabulary=self.model.vocab_size)

    def _refuse(self, order: Order, error: Exception) -> None:
        """Say why in one line; what is no user's mistake goes to the log with its traceback."""
        reason = _reason(error)
        name = order.slot
        order.end()
        self._emit(Err(reason) if name is None or name in self._busy or not order.lanes else LaneErr(name, reason))

    @property
    def _busy(self) -> set[int | None]:
        """Slots and lanes that have a request; None for one without (GEN)."""
        return {one.order.slot for one in self._running.values()}

    def _heed(self) -> None:
        """Stops and yields that came since the last window."""
        for one in list(self._running.values()):
            if one.order.stopped:
                one.lane.finish = "cancel"
                self._end(one)
            elif one.order.yield_to is not None:
                slot, one.order.yield_to = one.order.yield_to, None
                if why := self._cannot_yield(one, slot):
                    log.info("BYIELD %d: %s; the read goes on", slot, why)
                else:
                    self._yield(one, slot)

    def _cannot_yield(self, one: Running, slot: int) -> str:
        """Why a read does not give way to this slot; empty if it does."""
        left = max(0, one.lane.prompt - one.lane.held)
        if not self.limits.checkpoints or not one.lane.request.ckpt:
            return "what was read would not be kept"
        if left <= SHORT_READ:
            return f"only {left} tokens are left to read"
        own = one.order.slot
        if slot >= self.limits.slots or (slot != own if own is not None else slot in self._busy):
            return "the slot is not free for it"
        return ""

    def _yield(self, one: Running, slot: int) -> None:
        log.info("a read gives way: %d of %d tokens wait in slot %d", one.lane.held, one.lane.prompt, slot)
        one.voice.gave_way(slot)
        self.memory.move(one.lane.admission, slot)
        one.lane.finish = "cancel"
        self._end(one, gave_way=True)

    # ------------------------------------------------------------------------------------------------- windows

    def _step(self) -> None:
        """One window: schedule, compute, draw, tell."""
        lanes = {number: one.lane for number, one in self._running.items()}
        policy = self.limits.policy
        demands = [lane.demand(mtp=policy.mtp_depth > 0, lookup=policy.lookup_depth) for lane in lanes.values()]
        window = self._with_room(self.scheduler.window(demands))
        if not window.turns:
            return
        reading = [turn.lane for turn in window.turns if lanes[turn.lane].phase is Phase.READING]
        begun = self._clock()
        try:
            with self._watch(_what(window, lanes)):
                window, drawn = self._compute(window, lanes, demands)
        except Disconnected:
            raise
        except Exception as error:
            for turn in window.turns:
                self._fail(self._running[turn.lane], error)
            return
        verdicts = {number: one.verdict for number, one in drawn.items() if one.verdict is not None}
        self.scheduler.measured(window, self._clock() - begun, verdicts)
        for turn in window.turns:
            self._tell(self._running[turn.lane], drawn.get(turn.lane), turn.lane in reading)
        self._tell_pool()

    def _compute(
        self, window: Window, lanes: Mapping[int, Lane], demands: Sequence[Demand]
    ) -> tuple[Window, dict[int, Drawn]]:
        """The window as it was computed, and what every lane drew."""
        found = {demand.lane: demand.found for demand in demands if demand.found is not NOTHING}
        window, drafts = propose(self.model, lanes, window, found, self.scheduler.trimmed)
        logits = compute(self.model, lanes, window.turns, drafts)
        drawn = {
            number: draw(
                self.model, lanes[number], rows, drafts.get(number, ()), stopped=self._running[number].order.stopped
            )
            for number, rows in logits.items()
        }
        return window, drawn

    def _with_room(self, window: Window) -> Window:
        """The window as far as the pool has chunks for it: a lane gives up its drafts first, then it ends."""
        turns: list[Turn] = []
        for turn in window.turns:
            one = self._running[turn.lane]
            if self.memory.grow(one.lane.admission, turn.count + turn.drafts):
                turns.append(turn)
            elif turn.drafts and self.memory.grow(one.lane.admission, turn.count):
                turns.append(replace(turn, drafts=0, source=None))
            else:
                one.lane.finish = "pool"
                self._end(one)
        same = len(turns) == len(window.turns) and all(a is b for a, b in zip(turns, window.turns, strict=True))
        return window if same else replace(window, turns=tuple(turns))

    def _tell(self, one: Running, drawn: Drawn | None, reading: bool) -> None:
        """What a window did for one lane: lines, a checkpoint, and its end."""
        lane = one.lane
        if reading:
            one.voice.progress()
            if (why := lane.marks.get(lane.held)) is not None:
                self.memory.checkpoint(lane.admission, why)
        if drawn is None:
            return
        for at, token in enumerate(drawn.tokens):
            one.voice.token(token, drawn.logprobs[at] if drawn.logprobs else None)
        if drawn.error is not None:
            self._fail(one, drawn.error)
        elif lane.finish is not None:
            self._end(one)
        elif one.voice.leaves_control:
            one.order.released = True
            one.voice.left_control()

    def _end(self, one: Running, *, gave_way: bool = False) -> None:
        """The lane has its finish: its state is kept, and the last line goes out."""
        self._leave(one)
        self.memory.finish(one.lane.admission, gave_way=gave_way)
        one.order.end()
        one.voice.done()
        self._tell_pool()

    def _fail(self, one: Running, error: Exception) -> None:
        """The lane's state may be spoilt: nothing of it is kept."""
        self._leave(one)
        self.memory.discard(one.lane.admission)
        one.order.end()
        one.voice.failed(_reason(error))
        self._tell_pool()

    def _leave(self, one: Running) -> None:
        del self._running[one.lane.number]
        self.scheduler.leave(one.lane.number)

    def _tell_pool(self) -> None:
        """The POOL line, where it changed."""
        if not (self._lanes or self.limits.tell_pool):
            return
        mark = (self.memory.changes, self._served, len(self._running))
        if mark == self._pool_mark:
            return
        self._pool_mark = mark
        numbers = self.memory.pool_line(0 if self._lanes else self.limits.slots)
        state = PoolState(numbers.cells, numbers.free, numbers.main, numbers.slots)
        if state != self._pool:
            self._pool = state
            self._emit(state)


def _what(window: Window, lanes: Mapping[int, Lane]) -> str:
    """What a watch says of a window that does not end."""
    rows = sum(turn.count + turn.drafts for turn in window.turns)
    if len(window.turns) > 1:
        return f"a window of {rows} rows of {len(window.turns)} conversations"
    lane = lanes[window.turns[0].lane]
    return f"a window of {rows} rows at {lane.held} of {len(lane.tokens)} tokens"


def _reason(error: Exception) -> str:
    """Why a request ended; what is no user's mistake goes to the log with its traceback."""
    reason = str(error) if isinstance(error, StrataError) else f"internal error: {error!r}"
    if isinstance(error, RequestError):
        log.info("a request was refused: %s", reason)
    else:
        log.error("a request failed: %s", reason, exc_info=error)
    return reason
