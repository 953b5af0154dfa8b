"""Keeps one engine process running and gives its places to requests, first come, first served.

A request's way: it waits for a place, which there is when the engine is ready; its command is sent; its reports are
read until DONE or a refusal. Whatever goes wrong on the way ends the request with an error that says so: it never
waits without a limit.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from strata import logs
from strata.engine.protocol import Gen
from strata.errors import EngineError
from strata.server.exchange import Exchange
from strata.server.failures import EngineUnavailable, TooManyWaiting
from strata.server.flight import Flight
from strata.server.metrics import Metrics
from strata.server.process import EngineProcess, StartRefused
from strata.server.turns import Turns

LOG = logs.get("server")
MOST_WAITING = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds (0: no limit) and counts that the supervisor goes by."""

    ready_s: float = 900.0
    silence_s: float = 300.0
    start_tries: int = 3
    retry_pause_s: float = 15.0
    quit_s: float = 10.0
    slowest_prompt: float = 50.0
    """Tokens per second below which a prompt counts as not being read; longer prompts get more silence."""
    max_waiting: int = MOST_WAITING
    """Requests that may wait for the engine, in its own queue too; one more is refused."""
    max_in_flight: int = 1024
    """Requests that an engine with lanes is given at once; it has a queue of its own."""


class State(Enum):
    """What the engine is doing, as /health says it."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


class Supervisor:
    """Starts the engine, starts it again when it ends, and hands it out through `request`.

    `parallel`: how many requests the engine is given at once; None leaves that to the engine. An engine without lanes
    is given one at a time.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        limits: Limits | None = None,
        parallel: int | None = None,
    ) -> None:
        self.command = tuple(command)
        self.limits = limits or Limits()
        self.parallel = parallel
        self.restarts = 0
        self.metrics = Metrics()
        self._state = State.STARTING
        self._turns = Turns(self.limits.max_waiting)
        self._exchange: Exchange | None = None
        self._failure: EngineError | None = None
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        self._expecting = 0
        self._failed_at = 0.0
        self._keeper: asyncio.Task[None] | None = None

    @property
    def state(self) -> State:
        """What the engine is doing; READY only as long as it can be heard."""
        if self._state is State.READY and (self._exchange is None or not self._exchange.alive):
            return State.STARTING
        return self._state

    @property
    def max_context(self) -> int | None:
        """The engine's context length in tokens, while it is ready."""
        return self._exchange.process.max_context if self._exchange is not None and self.state is State.READY else None

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return self._turns.waiting

    @property
    def running(self) -> int:
        """Requests that the engine has."""
        return self._turns.taken

    @property
    def serving(self) -> int | None:
        """How many requests the engine is given at once; None: as many as it takes."""
        if self._exchange is not None and not self._exchange.by_lanes:
            return 1
        return self.parallel

    @property
    def info(self) -> Mapping[str, int | str]:
        """What the engine said in its INFO line; empty while none is ready."""
        return self._exchange.process.info if self._exchange is not None and self.state is State.READY else {}

    @property
    def pid(self) -> int | None:
        """The process id of the engine that is ready."""
        return self._exchange.process.pid if self._exchange is not None and self.state is State.READY else None

    @property
    def failure(self) -> EngineError | None:
        """Why the engine is not running, when `state` is FAILED."""
        return self._failure

    def launch(self) -> None:
        """Begin to start the engine in the background. Needs a running event loop; calling it again does nothing."""
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())

    async def start(self) -> int:
        """Start the engine and wait until it is ready: the context length in tokens. Raises EngineError: why not."""
        try:
            return await self.context()
        except EngineUnavailable:
            if self._failure is not None:
                raise self._failure from None
            raise

    async def context(self) -> int:
        """The engine's context length in tokens, as soon as it is ready.

        Raises EngineUnavailable when it cannot be, TooManyWaiting when too many wait for it to be.
        """
        self._expecting += 1
        try:
            while True:
                self._summon()
                if self.state is State.READY and self._exchange is not None:
                    return self._exchange.process.max_context
                self._check_queue(self._expecting + self._turns.waiting)
                await self._changed.wait()
        finally:
            self._expecting -= 1

    @contextlib.asynccontextmanager
    async def request(self, command: Gen, *, ahead: bool = False) -> AsyncIterator[Flight]:
        """One request: `async with supervisor.request(gen) as flight: async for report in flight.reports()`.

        `ahead`: it goes on with a reply that has begun, so it waits for nobody who came later. Leaving early stops it;
        the engine ends it in the background.
        """
        counted = self.metrics.arrive(command)
        try:
            exchange = await self._place(ahead=ahead)
        except BaseException as error:
            refused = isinstance(error, EngineError)
            code = getattr(error, "code", "engine_error") if refused else None
            self.metrics.end(counted, "error" if refused else "cancel", code)
            raise
        flight = exchange.open(command, counted)
        try:
            yield flight
        finally:
            flight.abandon()

    def begin_drain(self, stop_after_s: float | None = None) -> None:
        """Refuse those who wait and all who come; what is in progress goes on, for `stop_after_s` at most."""
        error = EngineUnavailable("The server is shutting down.")
        error.retry_after_s = None
        self._turns.close(error)
        if stop_after_s is not None:
            asyncio.get_running_loop().call_later(stop_after_s, self._stop_all)

    async def close(self) -> None:
        """End the engine and everything that belongs to it, requests in progress too."""
        self.begin_drain()
        self._stop_all()
        self._state = State.CLOSED
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._announce()
        if self._exchange is not None:
            await self._exchange.process.quit(self.limits.quit_s)
            await self._exchange.ended()

    def _stop_all(self) -> None:
        if self._exchange is not None:
            self._exchange.stop_all()

    async def _place(self, *, ahead: bool) -> Exchange:
        while True:
            self._summon()
            if self._exchange is not None and self.serving is None and not ahead:
                # The places are without number then: it is in the engine's own queue that requests wait.
                self._check_queue(len(self.metrics.waiting))
            await self._turns.acquire(ahead=ahead)
            if self._exchange is not None and self._exchange.alive:
                return self._exchange
            self._turns.release()  # the engine ended in the very moment that it had a place

    def _summon(self) -> None:
        """See to it that the engine runs or is being started. Raises EngineUnavailable if that is not to be."""
        if self.state is State.CLOSED:
            raise EngineUnavailable("The server is shutting down.")
        self.launch()
        if self.state is State.FAILED:
            if time.monotonic() - self._failed_at < self.limits.retry_pause_s:
                raise EngineUnavailable(f"The engine is not running: {self._failure}")
            self._state = State.STARTING
            self._wake.set()

    def _check_queue(self, waiting: int) -> None:
        """Raises TooManyWaiting when so many, the one that asks among them, are more than may wait."""
        if waiting > self.limits.max_waiting:
            raise TooManyWaiting(waiting - 1)

    def _announce(self) -> None:
        """Wake everybody who waits for a change of the state."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _keep(self) -> None:
        while True:
            try:
                process = await self._bring_up()
            except EngineError as error:
                self._fail(error)
                await self._wake.wait()
                continue
            limits = self.limits
            exchange = Exchange(
                process, self._turns, self.metrics, silence_s=limits.silence_s, slowest_prompt=limits.slowest_prompt
            )
            self._exchange, self._failure, self._state = exchange, None, State.READY
            self._turns.open((self.parallel or limits.max_in_flight) if exchange.by_lanes else 1)
            self._announce()
            await exchange.ended()
            self._state = State.STARTING
            self.restarts += 1
            LOG.warning("the engine %s; starting it again", process.ending())
            if not exchange.requests:
                # It fell over by itself: no request to blame, so trying at once would only spin.
                await asyncio.sleep(limits.retry_pause_s)

    def _fail(self, error: EngineError) -> None:
        LOG.error("%s", error)
        self._failure, self._failed_at = error, time.monotonic()
        self._state = State.FAILED
        self._wake.clear()
        self._turns.refuse(EngineUnavailable(f"The engine is not running: {error}"))
        self._announce()

    async def _bring_up(self) -> EngineProcess:
        tries = self.limits.start_tries
        for attempt in range(1, tries + 1):
            process: EngineProcess | None = None
            try:
                process = await EngineProcess.start(self.command)
                await process.wait_ready(self.limits.ready_s)
                return process
            except (StartRefused, asyncio.CancelledError):
                if process is not None:
                    process.kill()
                    await process.quit(1)
                raise
            except EngineError as error:
                if attempt == tries:
                    raise
                pause = self.limits.retry_pause_s
                LOG.warning("start %d of %d failed, next in %g s: %s", attempt, tries, pause, error)
                await asyncio.sleep(pause)
        raise EngineUnavailable("The engine was not started.")
