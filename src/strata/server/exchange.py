"""Everything that is said between the server and one engine process: many requests, each hears its own lines.

An engine whose INFO says lanes=1 is asked for the LANES form, in which every line of a request carries its lane; any
other serves one request at a time on its control lines.
"""

import asyncio
import contextlib
from dataclasses import replace

from strata import logs
from strata.engine.protocol import BStop, Err, Fatal, Gen, Lanes, PoolState, Report, Stop
from strata.errors import EngineError
from strata.server.failures import EngineDied, EngineRefused, EngineStalled
from strata.server.flight import Flight
from strata.server.lanes import of_lane
from strata.server.metrics import Metrics
from strata.server.process import EngineProcess
from strata.server.records import Generation
from strata.server.turns import Turns

LOG = logs.get("server")
GRACE_S = 0.1
"""Before an engine counts as silent: its lines may be waiting if it was this process (or the machine) that slept."""


class Exchange:
    """The requests in flight on a process that is ready, and the one reader of its lines.

    A request that holds a place of `turns` is sent by `open`; the place is given back when the engine has ended it.
    When no line at all has come for `silence_s` (0: no limit) and the time that prompts may take, the process is
    killed. However it ends, every request in flight is told why.
    """

    def __init__(
        self, process: EngineProcess, turns: Turns, metrics: Metrics, *, silence_s: float, slowest_prompt: float
    ) -> None:
        self.process = process
        self.by_lanes = process.info.get("lanes") == 1
        self.requests = 0
        self.alive = True
        self._turns = turns
        self._metrics = metrics
        self._silence_s = silence_s
        self._slowest_prompt = slowest_prompt
        self._flights: dict[int, Flight] = {}
        self._loop = asyncio.get_running_loop()
        self._last_line = self._loop.time()
        self._alarm: asyncio.TimerHandle | None = None
        self._rang_after: float | None = None
        self._silent = False
        self._fault: EngineError | None = None
        self._fatal: str | None = None
        if self.by_lanes:
            process.write(Lanes())
        self._reader = asyncio.create_task(self._read())

    def open(self, command: Gen, counted: Generation) -> Flight:
        """Send a request; the caller holds a place of `turns`. Lanes are numbered in the order of sending."""
        lane = self.requests
        self.requests += 1
        if not self._flights:
            self._last_line = self._loop.time()
        flight = Flight(
            command, lane, self._slowest_prompt, lambda: self._stop(lane),
            lambda report: self._metrics.take(counted, report),
            lambda finish, error: self._metrics.end(counted, finish, error),
        )  # fmt: skip
        self._flights[lane] = flight
        self._metrics.send(counted, begins=not self.by_lanes)
        self.process.write(replace(command, slot=lane) if self.by_lanes else command)
        self._watch()
        return flight

    def stop_all(self) -> None:
        """Ask the engine to end all requests at its next window."""
        for flight in list(self._flights.values()):
            flight.stop(enough=False)

    async def ended(self) -> None:
        """Until the process has ended and all its requests know."""
        await asyncio.shield(self._reader)

    def _stop(self, lane: int) -> None:
        self.process.write(BStop(lane) if self.by_lanes else Stop())

    async def _read(self) -> None:
        try:
            async with contextlib.aclosing(self.process.reports()) as reports:
                async for report in reports:
                    self._last_line = self._loop.time()
                    if report is not None:
                        self._dispatch(report)
        except EngineError as error:
            self._fault = error
            self.process.kill()
        finally:
            self.alive = False
            self._turns.shut()
            if self._alarm is not None:
                self._alarm.cancel()
            await self.process.wait_for_end()
            for flight in list(self._flights.values()):
                self._end(flight, self._failure(flight.doing))

    def _dispatch(self, report: Report) -> None:
        if isinstance(report, Fatal):
            self._fatal = report.reason
            return
        if isinstance(report, PoolState):
            self._metrics.take_pool(report)
            return
        found = of_lane(report) if self.by_lanes else (next(iter(self._flights), -1), report)
        if found is None:
            return
        lane, own = found
        flight = self._flights.get(lane)
        if flight is None:
            return
        if isinstance(own, Err):
            self._end(flight, EngineRefused(own.reason))
            return
        patience = flight.patience_s
        flight.take(own)
        if flight.ended:
            self._forget(flight)
        elif flight.patience_s < patience:
            self._watch()

    def _end(self, flight: Flight, error: EngineError) -> None:
        flight.fail(error)
        self._forget(flight)

    def _forget(self, flight: Flight) -> None:
        del self._flights[flight.lane]
        self._turns.release()

    def _failure(self, doing: str) -> EngineError:
        log = self.process.quoted_log()
        if self._silent:
            return EngineStalled(
                f"The engine stalled: it sent nothing for {self._silence_s:.3g} s while {doing}, so it was killed and "
                f"is being restarted{log}"
            )
        if self._fault is not None:
            return EngineStalled(f"{self._fault} It was killed and is being restarted{log}")
        if self._fatal is not None:
            return EngineDied(f"The engine failed while {doing} and is being restarted: {self._fatal}")
        return EngineDied(f"The engine {self.process.ending()} while {doing}; it is being restarted{log}")

    def _deadline(self) -> float:
        patience = max((flight.patience_s for flight in self._flights.values()), default=0.0)
        return self._last_line + self._silence_s + patience

    def _watch(self) -> None:
        """Have the alarm ring no later than the deadline; one that rings too early looks again."""
        if not self._silence_s or not self._flights or not self.alive:
            return
        deadline = self._deadline()
        if self._alarm is not None:
            if self._alarm.when() <= deadline:
                return
            self._alarm.cancel()
        self._alarm = self._loop.call_at(deadline, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        if not self._flights or self._loop.time() < self._deadline():
            self._watch()
        elif self._rang_after == self._last_line:
            self._silent = True
            self.process.kill()
        else:
            self._rang_after = self._last_line
            self._alarm = self._loop.call_later(GRACE_S, self._ring)
