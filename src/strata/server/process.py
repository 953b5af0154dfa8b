"""One run of the engine process: its start, its lines, its log, its end."""

import asyncio
import contextlib
import logging
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence

from strata import logs
from strata.engine.protocol import Err, Fatal, Gen, Info, Quit, Ready, Report, Stop, parse_report
from strata.errors import EngineError
from strata.server.failures import EngineDied, EngineStalled, EngineUnavailable

LOG = logs.get("engine")
LOG_LINES = 20
_LINE_LIMIT = 2**20
_END = object()
_OWN_LINE = re.compile(r"\d\d:\d\d:\d\d (DEBUG|INFO|WARNING|ERROR|CRITICAL) strata\.(\w+): ")


class StartRefused(EngineUnavailable):
    """The engine said in one sentence why it cannot start: trying again would end the same way."""


class EngineProcess:
    """A running engine. Made by `start`; `wait_ready` comes first, then requests, then `quit` or `kill`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._reports: asyncio.Queue[object] = asyncio.Queue()
        self._last_line = time.monotonic()
        self.log_tail: deque[str] = deque(maxlen=LOG_LINES)
        self.info: Mapping[str, int | str] = {}
        self.max_context = 0
        self.requests = 0
        self._pumps = [asyncio.create_task(self._pump_reports()), asyncio.create_task(self._pump_log())]

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str] | None = None) -> "EngineProcess":
        """Start the program. Raises StartRefused when there is no such program."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LINE_LIMIT,
                env=env,
                # Ctrl-C in the terminal is for the server, which lets the engine finish what it is doing.
                start_new_session=sys.platform != "win32",
            )
        except OSError as error:
            raise StartRefused(f"The engine {command[0]} cannot be started: {error.strerror}.") from None
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.returncode is None

    async def wait_ready(self, limit_s: float) -> None:
        """Read until READY; sets `info` and `max_context`. `limit_s` 0: no limit.

        Raises StartRefused (the engine said why it will not run), EngineDied or EngineStalled.
        """
        deadline = time.monotonic() + limit_s if limit_s else None
        said = ""
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                async with asyncio.timeout(left):
                    item = await self._reports.get()
            except TimeoutError:
                self.kill()
                raise EngineStalled(
                    f"The engine was not ready after {limit_s:g} s (STRATA_ENGINE_READY_S){self._quoted_log()}"
                ) from None
            if isinstance(item, Info):
                self.info = item.values
            elif isinstance(item, Ready):
                self.max_context = item.max_context
                return
            elif isinstance(item, Err | Fatal):
                said = item.reason
            elif isinstance(item, EngineError):
                self.kill()
                raise EngineStalled(f"{item}{self._quoted_log()}")
            elif item is _END:
                raise await self._why_not_started(said)

    def write(self, command: Gen | Stop | Quit) -> None:
        """Give one command to the pipe. A pipe that broke is no error: the end of the process tells why."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            with contextlib.suppress(OSError):
                stdin.write(f"{command.format()}\n".encode())

    async def drain(self) -> None:
        """Until the engine has read most of what was written."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                await self._process.stdin.drain()

    def begin(self) -> None:
        """A new request starts: lines left over from earlier ones are dropped."""
        self.requests += 1
        kept = [item for item in self._drain_queue() if item is _END or isinstance(item, EngineError)]
        for item in kept:
            self._reports.put_nowait(item)
        self._last_line = time.monotonic()

    async def next_report(self, silence_s: float, doing: str) -> Report:
        """The next known line. `silence_s`: longest time without any line (0: no limit); `doing` is for the errors.

        Raises EngineDied when the process ends, EngineStalled (after killing it) when it is silent or out of step.
        """
        while True:
            left = max(0.0, self._last_line + silence_s - time.monotonic()) if silence_s else None
            try:
                async with asyncio.timeout(left):
                    item = await self._reports.get()
            except TimeoutError:
                if time.monotonic() - self._last_line < silence_s:
                    continue
                self.kill()
                await self._wait_for_end()
                raise EngineStalled(
                    f"The engine stalled: it sent nothing for {silence_s:.3g} s while {doing}, so it was killed and is "
                    f"being restarted{self._quoted_log()}"
                ) from None
            if isinstance(item, Fatal):
                await self._wait_for_end()
                raise EngineDied(f"The engine failed while {doing} and is being restarted: {item.reason}")
            if isinstance(item, Report):
                return item
            if isinstance(item, EngineError):
                self.kill()
                await self._wait_for_end()
                raise EngineStalled(f"{item} It was killed and is being restarted{self._quoted_log()}")
            if item is _END:
                self._reports.put_nowait(_END)
                await self._wait_for_end()
                raise EngineDied(
                    f"The engine {self.ending()} while {doing}; it is being restarted{self._quoted_log()}"
                )

    async def wait(self) -> None:
        """Until the process has ended and its last lines are read."""
        await self._process.wait()
        await asyncio.wait(self._pumps, timeout=2)

    async def quit(self, grace_s: float) -> None:
        """End it: QUIT, then a terminate and a kill for one that does not go by itself within `grace_s` each."""
        self.write(Quit())
        for end in (None, self._process.terminate, self._process.kill):
            if end is not None:
                with contextlib.suppress(ProcessLookupError):
                    end()
            try:
                async with asyncio.timeout(grace_s):
                    await self._process.wait()
                break
            except TimeoutError:
                continue
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def ending(self) -> str:
        """How the process ended, as the verb of a sentence."""
        code = self._process.returncode
        if code is None:
            return "closed its output"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name} (signal {-code})"
            return f"was killed by signal {-code}"
        return f"ended with exit code {code}"

    async def _why_not_started(self, said: str) -> EngineError:
        await self._wait_for_end()
        last = self.log_tail[-1] if self.log_tail else ""
        if not said and last.startswith("strata"):
            said = last.partition(": ")[2]
        if said and not said.startswith("internal error") and self._process.returncode in (1, 2):
            return StartRefused(said)
        return EngineDied(f"The engine {self.ending()} before it was ready{self._quoted_log()}")

    async def _wait_for_end(self) -> None:
        """After the end of its output: a process that goes on without one is no use to anybody."""
        await asyncio.wait([asyncio.create_task(self.wait())], timeout=5)
        if self.running:
            self.kill()
            await self.wait()

    def _quoted_log(self) -> str:
        if not self.log_tail:
            return "; its log is empty."
        return ". Its last log lines: " + " | ".join(self.log_tail)

    def _drain_queue(self) -> list[object]:
        items = []
        while not self._reports.empty():
            items.append(self._reports.get_nowait())
        return items

    async def _pump_reports(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        try:
            while line := await stdout.readline():
                self._last_line = time.monotonic()
                report = parse_report(line.decode("utf-8", "replace").rstrip("\r\n"))
                if report is not None:
                    self._reports.put_nowait(report)
        except EngineError as error:
            self._reports.put_nowait(error)
        except ValueError:
            self._reports.put_nowait(EngineError(f"The engine sent a line of more than {_LINE_LIMIT} bytes."))
        finally:
            self._reports.put_nowait(_END)

    async def _pump_log(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        rest = b""
        while chunk := await stderr.read(2**16):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-(2**16) :]
            for line in lines:
                self._log(line)
        if rest:
            self._log(rest)

    def _log(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").rstrip()
        level, logger = logging.INFO, LOG
        if own := _OWN_LINE.match(text):
            # The engine's lines come with a time, level and name as ours do: once is enough.
            level, logger, text = logging.getLevelNamesMapping()[own[1]], logs.get(own[2]), text[own.end() :]
        if text:
            self.log_tail.append(text[:500])
            logger.log(level, "%s", text)
