"""One run of the engine process: its start, its lines, its log, its end."""

import asyncio
import contextlib
import logging
import re
import signal
import sys
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence

from strata import logs, settings
from strata.engine.protocol import BStop, Err, Fatal, Gen, Info, Lanes, Quit, Ready, Report, Stop, parse_report
from strata.errors import EngineError
from strata.server.failures import EngineDied, EngineStalled, EngineUnavailable

LOG = logs.get("engine")
LOG_LINES = 20
_LINE_LIMIT = 2**20
_CHUNK = 2**16
_OWN_LINE = re.compile(r"\d\d:\d\d:\d\d (DEBUG|INFO|WARNING|ERROR|CRITICAL) strata\.(\w+): ")


class StartRefused(EngineUnavailable):
    """The engine said in one sentence why it cannot start: trying again would end the same way."""


class EngineProcess:
    """A running engine. Made by `start`; `wait_ready` comes first, then requests, then `quit` or `kill`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.log_tail: deque[str] = deque(maxlen=LOG_LINES)
        self.info: Mapping[str, int | str] = {}
        self.max_context = 0
        self._lines: deque[bytes] = deque()
        self._rest = b""
        self._log_pump = asyncio.create_task(self._pump_log())

    @classmethod
    async def start(cls, command: Sequence[str]) -> "EngineProcess":
        """Start the program. Raises StartRefused when there is no such program."""
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LINE_LIMIT,
                env=settings.without_secrets(),
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
        said = ""
        try:
            async with asyncio.timeout(limit_s or None), contextlib.aclosing(self.reports()) as reports:
                async for report in reports:
                    if isinstance(report, Info):
                        self.info = report.values
                    elif isinstance(report, Ready):
                        self.max_context = report.max_context
                        return
                    elif isinstance(report, Err | Fatal):
                        said = report.reason
        except TimeoutError:
            self.kill()
            raise EngineStalled(
                f"The engine was not ready after {limit_s:g} s (STRATA_ENGINE_READY_S){self.quoted_log()}"
            ) from None
        except EngineError as error:
            self.kill()
            raise EngineStalled(f"{error}{self.quoted_log()}") from None
        raise await self._why_not_started(said)

    async def reports(self) -> AsyncGenerator[Report | None, None]:
        """The lines of the engine up to the end of its output; None for one that this version does not know.

        Raises EngineError for a line that cannot be read.
        """
        stdout = self._process.stdout
        assert stdout is not None
        while True:
            # What was read past READY belongs to the next who asks.
            while self._lines:
                yield parse_report(self._lines.popleft().decode("utf-8", "replace").rstrip("\r"))
            chunk = await stdout.read(_CHUNK)
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            if not chunk and self._rest:
                lines, self._rest = [self._rest], b""
            if not chunk and not lines:
                return
            if max(map(len, (*lines, self._rest))) > _LINE_LIMIT:
                raise EngineError(f"The engine sent a line of more than {_LINE_LIMIT} bytes.")
            self._lines.extend(lines)

    def write(self, command: Gen | Stop | BStop | Lanes | Quit) -> None:
        """Give one command to the pipe. A pipe that broke is no error: the end of the process tells why."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.is_closing():
            with contextlib.suppress(OSError):
                stdin.write(f"{command.format()}\n".encode())

    async def wait(self) -> None:
        """Until the process has ended and the last lines of its log are read."""
        await self._process.wait()
        await asyncio.wait([self._log_pump], timeout=2)

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
        self._log_pump.cancel()
        await asyncio.gather(self._log_pump, return_exceptions=True)

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
        await self.wait_for_end()
        last = self.log_tail[-1] if self.log_tail else ""
        if not said and last.startswith("strata"):
            said = last.partition(": ")[2]
        if said and not said.startswith("internal error") and self._process.returncode in (1, 2):
            return StartRefused(said)
        return EngineDied(f"The engine {self.ending()} before it was ready{self.quoted_log()}")

    async def wait_for_end(self) -> None:
        """After the end of its output: a process that goes on without one is no use to anybody."""
        await asyncio.wait([asyncio.create_task(self.wait())], timeout=5)
        if self.running:
            self.kill()
            await self.wait()

    def quoted_log(self) -> str:
        """The last lines of its log, as the end of a sentence."""
        if not self.log_tail:
            return "; its log is empty."
        return ". Its last log lines: " + " | ".join(self.log_tail)

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
