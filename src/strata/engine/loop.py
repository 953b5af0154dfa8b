"""The life of a request: order, lane, windows, drawn tokens, reports. `Engine.serve` reads like it.

1. An order comes from the inbox and is checked.
2. The kept conversation gives the state to start from; a lane is made of both.
3. The scheduler says what the next window computes, and the model advances the states of its lanes.
4. A lane whose known tokens are all computed draws the next one from its logits.
5. Progress and tokens go out; a state at a mark is kept as a checkpoint. Then again from 3, until the lane is done.
6. Its state is kept as the live one, and DONE ends the request.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata import logs
from strata.arithmetic.sampling import sample
from strata.engine.channel import Disconnected, Inbox, Order
from strata.engine.conversation import Conversation
from strata.engine.lane import Lane, Phase, check, turn_start
from strata.engine.protocol import Done, Err, Gen, Progress, Report, Resume, Reused, Token
from strata.engine.reading import LARGEST_CHUNK
from strata.engine.scheduler import DECODE_SHARE, Policy, Scheduler
from strata.engine.window import compute
from strata.errors import RequestError, StrataError

if TYPE_CHECKING:
    from strata.model import Model

log = logs.get("engine")


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine was started with. `chunk` prompt tokens a window; None: adapted to its speed, up to `largest`.

    `decode_share`: seconds of decoding that go with a second of reading while both wait.
    """

    context: int
    eos_ids: tuple[int, ...]
    turn_id: int | None = None
    chunk: int | None = None
    largest_chunk: int = LARGEST_CHUNK
    checkpoints: int = 6
    decode_share: float = DECODE_SHARE


def _unwatched(what: str) -> AbstractContextManager[None]:
    return nullcontext()


def _clock_seed() -> int:
    return time.time_ns() & (2**64 - 1)


class Engine:
    """Serves the orders of an inbox, one at a time, with one model."""

    def __init__(
        self,
        model: "Model",
        limits: Limits,
        emit: Callable[[Report], None],
        *,
        watch: Callable[[str], AbstractContextManager[None]] = _unwatched,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.model = model
        self.limits = limits
        self.conversation = Conversation(limits.checkpoints)
        self.order: Order | None = None
        self._emit = emit
        self._watch = watch
        self._clock = clock
        policy = Policy(limits.decode_share, chunk=limits.chunk, largest_chunk=limits.largest_chunk)
        self.scheduler = Scheduler(policy)
        self._served = 0

    def run(self, inbox: Inbox) -> None:
        """Serve until the inbox says that it is over. A request's error ends that request only."""
        while (order := inbox.next()) is not None:
            self.order = order
            try:
                self.serve(order)
            except Disconnected:
                raise
            except Exception as error:
                self._fail(order, error)
            self.order = None

    def serve(self, order: Order) -> None:
        """One request from its admission to DONE."""
        if isinstance(order.request, RequestError):
            raise order.request
        check(order.request, context=self.limits.context, vocabulary=self.model.vocab_size)
        lane = self._admit(order.request)
        report = _Report(lane, self._emit, self._clock)
        try:
            while lane.phase is not Phase.DONE:
                if order.stopped:
                    lane.cancel()
                else:
                    self._step(lane, order, report)
        except Exception:
            # The failed window may have spoilt states that were kept on the way.
            self.conversation.forget()
            raise
        finally:
            self.scheduler.leave(lane.number)
        if lane.request.ckpt:
            self.conversation.keep(lane.state)
        order.finished = True
        report.done()

    def _admit(self, request: Gen) -> Lane:
        """A lane that starts where the kept conversation lets it start."""
        if request.skipped:
            log.info("keys of the request that mean nothing here: %s", ", ".join(request.skipped))
        prompt = list(request.ids)
        with self._watch(f"resuming a prompt of {len(prompt)} tokens"):
            state = self.conversation.take(prompt) if request.ckpt else self.conversation.peek(prompt)
        self._served += 1
        return Lane(
            self._served,
            request,
            self.model.new_state() if state is None else state,
            seed=request.seed or _clock_seed(),
            context=self.limits.context,
            eos_ids=self.limits.eos_ids,
            marks=(turn_start(prompt, self.limits.turn_id), request.pin) if request.ckpt else (),
        )

    def _step(self, lane: Lane, order: Order, report: "_Report") -> None:
        """One window: schedule, compute, keep, draw, tell."""
        reading = lane.phase is Phase.READING
        window = self.scheduler.window([lane.demand()])
        begun = self._clock()
        with self._watch(f"a window of {window.work.rows} rows at {lane.held} of {len(lane.tokens)} tokens"):
            logits = compute(self.model, {lane.number: lane}, window.turns)
        self.scheduler.measured(window, self._clock() - begun)
        if reading:
            report.progress()
            if lane.at_mark:
                self.conversation.checkpoint(lane.state, pinned=lane.held == lane.request.pin)
        for row in logits.values():
            lane.accept(sample(row, lane.sampling, choice=0, position=len(lane.tokens)), stopped=order.stopped)
            report.token()

    def _fail(self, order: Order, error: Exception) -> None:
        """Say why in one ERR line; what is no user's mistake goes to the log with its traceback."""
        reason = str(error) if isinstance(error, StrataError) else f"internal error: {error!r}"
        if isinstance(error, RequestError):
            log.info("a request was refused: %s", reason)
        else:
            log.error("a request failed: %s", reason, exc_info=error)
        order.finished = True
        self._emit(Err(reason))


class _Report:
    """What a client is told about one lane, and the times in it."""

    def __init__(self, lane: Lane, emit: Callable[[Report], None], clock: Callable[[], float]) -> None:
        self._lane = lane
        self._emit = emit
        self._clock = clock
        self._begun = clock()
        self._read: float | None = None
        if lane.reused:
            emit(Resume(lane.reused))
            emit(Reused(lane.reused))

    def progress(self) -> None:
        seconds = self._clock() - self._begun
        fresh = self._lane.held - self._lane.reused
        speed = fresh / seconds if seconds > 0 else 0.0
        self._emit(Progress(self._lane.held, self._lane.prompt, seconds * 1000, speed))

    def token(self) -> None:
        if self._read is None:
            self._read = self._clock()
        self._emit(Token(self._lane.tokens[-1]))

    def done(self) -> None:
        lane, end = self._lane, self._clock()
        read = end if self._read is None else self._read
        done = Done(
            lane.generated,
            lane.prompt,
            (read - self._begun) * 1000,
            (end - read) * 1000,
            str(lane.finish),
            reused=lane.reused,
            prompt_read=min(lane.held, lane.prompt) - lane.reused,
        )
        log.info(
            "prompt %d (%d reused, %d read in %.0f ms), generated %d in %.0f ms, %s",
            done.prompt, done.reused, done.prompt_read, done.prompt_ms, done.generated, done.decode_ms, done.finish,
        )  # fmt: skip
        self._emit(done)
