"""Keeps one engine process running and gives it to one request at a time.

A request's way: it waits for its turn, then for the engine to be ready; its command is sent; its reports are read until
DONE or ERR. Whatever goes wrong on the way ends the request with an error that says so: it never waits without a limit.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType

from strata import logs
from strata.engine.protocol import Done, Err, Gen, Progress, Report, Stop
from strata.errors import EngineError
from strata.server.failures import EngineDied, EngineRefused, EngineStalled, EngineUnavailable
from strata.server.process import EngineProcess, StartRefused
from strata.server.turns import Turns

LOG = logs.get("server")


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
    max_waiting: int = 1024


class State(Enum):
    """What the engine is doing, as /health says it."""

    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"
    CLOSED = "closed"


class Supervisor:
    """Starts the engine, starts it again when it ends, and hands it out through `request`."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> None:
        self.command = tuple(command)
        self.limits = limits or Limits()
        self.state = State.STARTING
        self.restarts = 0
        self._env = env
        self._turns = Turns(self.limits.max_waiting)
        self._process: EngineProcess | None = None
        self._failure: EngineError | None = None
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        self._current: Run | None = None
        self._failed_at = 0.0
        self._keeper: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """Requests that wait for their turn."""
        return self._turns.waiting

    @property
    def running(self) -> int:
        """Requests in progress (0 or 1)."""
        return int(self._turns.taken)

    @property
    def info(self) -> Mapping[str, int | str]:
        """What the engine said in its INFO line; empty while none is ready."""
        return self._process.info if self._process is not None and self.state is State.READY else {}

    @property
    def pid(self) -> int | None:
        """The process id of the engine that is ready."""
        return self._process.pid if self._process is not None and self.state is State.READY else None

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
        """The engine's context length in tokens, as soon as it is ready. Raises EngineUnavailable when it cannot be."""
        return (await self._ready()).max_context

    def request(self, command: Gen) -> "Run":
        """One request, to be used as `async with supervisor.request(gen) as run: async for report in run.reports()`."""
        return Run(self, command)

    def begin_drain(self, stop_after_s: float | None = None) -> None:
        """Refuse those who wait and all who come; what is in progress goes on, for `stop_after_s` at most."""
        error = EngineUnavailable("The server is shutting down.")
        error.retry_after_s = None
        self._turns.close(error)
        if stop_after_s is not None:
            asyncio.get_running_loop().call_later(stop_after_s, self._stop_current)

    def _stop_current(self) -> None:
        if self._current is not None:
            self._current.stop()

    async def close(self) -> None:
        """End the engine and everything that belongs to it, a request in progress too."""
        self.begin_drain()
        self._stop_current()
        self.state = State.CLOSED
        tasks = [task for task in (self._keeper, *self._tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._announce()
        if self._process is not None:
            await self._process.quit(self.limits.quit_s)

    async def _ready(self) -> EngineProcess:
        if self.state is not State.CLOSED:
            self.launch()
        while True:
            if self.state is State.CLOSED:
                raise EngineUnavailable("The server is shutting down.")
            if self.state is State.FAILED:
                if time.monotonic() - self._failed_at < self.limits.retry_pause_s:
                    raise EngineUnavailable(f"The engine is not running: {self._failure}")
                self.state = State.STARTING
                self._wake.set()
            if self.state is State.READY and self._process is not None and self._process.running:
                return self._process
            await self._changed.wait()

    def _announce(self) -> None:
        """Wake everybody who waits for a change of the state."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _keep(self) -> None:
        while True:
            try:
                process = await self._bring_up()
            except EngineError as error:
                LOG.error("%s", error)
                self._failure, self._failed_at = error, time.monotonic()
                self.state = State.FAILED
                self._wake.clear()
                self._announce()
                await self._wake.wait()
                continue
            self._process, self._failure, self.state = process, None, State.READY
            self._announce()
            await process.wait()
            self.state = State.STARTING
            self.restarts += 1
            LOG.warning("the engine %s; starting it again", process.ending())
            if not process.requests:
                # It fell over by itself: no request to blame, so trying at once would only spin.
                await asyncio.sleep(self.limits.retry_pause_s)

    async def _bring_up(self) -> EngineProcess:
        tries = self.limits.start_tries
        for attempt in range(1, tries + 1):
            process: EngineProcess | None = None
            try:
                process = await EngineProcess.start(self.command, self._env)
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

    def _finish_in_background(self, process: EngineProcess) -> None:
        """Hold the turn until the engine has ended a request that nobody reads any more."""
        task = asyncio.create_task(self._finish(process))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, process: EngineProcess) -> None:
        try:
            process.write(Stop())
            while not isinstance(await process.next_report(self.limits.silence_s, "ending a request"), Done | Err):
                pass
        except EngineError as error:
            LOG.warning("%s", error)
        finally:
            self._turns.release()


class Run:
    """One request on the engine. Leaving the `async with` early stops it and frees the engine for the next."""

    def __init__(self, supervisor: Supervisor, command: Gen) -> None:
        self._supervisor = supervisor
        self._command = command
        self._process: EngineProcess | None = None
        self._ended = False
        self._tokens = 0

    async def __aenter__(self) -> "Run":
        turns = self._supervisor._turns
        await turns.acquire()
        try:
            self._process = await self._supervisor._ready()
            self._process.begin()
            self._process.write(self._command)
            self._supervisor._current = self
            silence = self._supervisor.limits.silence_s
            try:
                async with asyncio.timeout(silence or None):
                    await self._process.drain()
            except TimeoutError:
                self._process.kill()
                raise EngineStalled(
                    f"The engine did not read its input for {silence:g} s, so it was killed and is being restarted."
                ) from None
        except BaseException:
            if self._process is None:
                turns.release()
            else:
                self._supervisor._finish_in_background(self._process)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._supervisor._current = None
        if self._ended or self._process is None:
            self._supervisor._turns.release()
        else:
            self._supervisor._finish_in_background(self._process)

    def stop(self) -> None:
        """Ask the engine to end the request at its next window; DONE follows in `reports`."""
        if self._process is not None and not self._ended:
            self._process.write(Stop())

    async def reports(self) -> AsyncGenerator[Report, None]:
        """The engine's lines up to and with DONE. Raises EngineRefused, EngineDied or EngineStalled."""
        process, limits = self._process, self._supervisor.limits
        if process is None:
            raise EngineUnavailable("The request was not sent.")
        prompt = len(self._command.ids)
        extra, last_ms = prompt / limits.slowest_prompt, 0.0
        while True:
            silence = limits.silence_s + extra if limits.silence_s else 0.0
            try:
                report = await process.next_report(silence, self._doing(prompt))
            except (EngineDied, EngineStalled):
                self._ended = True
                raise
            if isinstance(report, Err):
                self._ended = True
                raise EngineRefused(report.reason)
            if isinstance(report, Progress):
                extra, last_ms = 3 * max(0.0, report.ms - last_ms) / 1000, report.ms
            elif not isinstance(report, Done):
                self._tokens += report.WORD == "T"
                extra = extra if self._tokens == 0 else 0.0
            self._ended = isinstance(report, Done)
            yield report
            if self._ended:
                return

    def _doing(self, prompt: int) -> str:
        if self._tokens:
            return f"writing this reply (after {self._tokens} tokens)"
        return f"reading this request's prompt of {prompt} tokens"
