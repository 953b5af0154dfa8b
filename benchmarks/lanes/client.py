"""An engine process, driven over its line protocol with LANES; every line is stamped when it is read."""

import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.rounds import ROOT, SideError, log_path, wait_or_kill
from strata.engine.protocol import (
    Err,
    Fatal,
    Gen,
    Info,
    LaneDone,
    LaneErr,
    LaneProgress,
    LaneResume,
    Ready,
    Report,
    SlotToken,
    parse_report,
)
from strata.errors import EngineError

SILENCE_S = 300.0  # an engine that says nothing for so long is taken for stuck
ENGINE = (sys.executable, str(ROOT / "engine" / "strata"))


@dataclass
class Request:
    """One request: what was sent, and what came back when (seconds of `time.perf_counter`)."""

    lane: int
    prompt: int
    sent: float
    times: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    reached: int = 0
    reused: int = 0
    ended: float | None = None
    finish: str = ""
    generated: int = 0
    accepted: int = 0
    offered: int = 0

    @property
    def first(self) -> float:
        """Seconds from sending to the first token."""
        return self.times[0] - self.sent

    @property
    def seconds(self) -> float:
        """Seconds from sending to the end."""
        assert self.ended is not None
        return self.ended - self.sent


class Engine:
    """A running engine. Lines are read by a thread; requests change only within `until` and `wait`."""

    def __init__(self, name: str, arguments: Sequence[str], command: Sequence[str] = ENGINE) -> None:
        self.name = name
        self.info: Mapping[str, int | str] = {}
        self.context = 0
        self._open: dict[int, Request] = {}
        self._lanes = 0
        self._lines: queue.SimpleQueue[tuple[float, str | None]] = queue.SimpleQueue()
        # Each of several engines is to rearrange its weights: left to itself, the last might find too little memory.
        environment = {"STRATA_REPACK": "on"} | os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._log = open(log_path(f"lanes {name}"), "w")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*command, "--serve", *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        threading.Thread(target=self._read, name=f"lines of {name}", daemon=True).start()
        try:
            self._start()
        except SideError:
            self.close()
            raise

    def send(self, prompt: Sequence[int], count: int) -> Request:
        """Ask for `count` greedy tokens after a prompt."""
        return self.command(Gen(count, tuple(prompt)))

    def command(self, command: Gen) -> Request:
        """Send a request as it is, in a lane of its own."""
        lane, self._lanes = self._lanes, self._lanes + 1
        line = replace(command, slot=lane).format()
        request = self._open[lane] = Request(lane, len(command.ids), time.perf_counter())
        self._write(line)
        return request

    def answer(self, prompt: Sequence[int], count: int) -> Request:
        """A request alone, up to its end; it has to have all its tokens."""
        request = self.send(prompt, count)
        self.wait([request])
        self.check([request], count)
        return request

    def check(self, requests: Iterable[Request], count: int) -> None:
        """SideError if a request ended before its `count` tokens: its times would compare nothing."""
        for r in requests:
            if r.generated != count:
                raise self._error(f"a prompt of {r.prompt} tokens got {r.generated} of {count} tokens ({r.finish})")

    def stop(self, request: Request) -> None:
        """End a request at its next window."""
        if request.ended is None:
            self._write(f"BSTOP {request.lane}")

    def until(self, true: Callable[[], bool]) -> None:
        """Take in lines until a condition on requests holds."""
        while not true():
            self._take(*self._next())

    def wait(self, requests: Iterable[Request]) -> None:
        """Take in lines until these requests have ended."""
        wanted = list(requests)
        self.until(lambda: all(r.ended is not None for r in wanted))

    def cpu(self) -> float:
        """CPU seconds of the process so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> dict[str, float]:
        """MiB resident: `all`, and `anonymous` (its own, not mapped from files)."""
        names = {"VmRSS": "all", "RssAnon": "anonymous"}
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        pairs = (line.split(":", 1) for line in lines)
        return {names[key]: int(value.split()[0]) / 1024 for key, value in pairs if key in names}

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write("QUIT\n")
            self._process.stdin.close()
        wait_or_kill(self._process)
        self._log.close()

    def _start(self) -> None:
        ready = False
        while not ready:
            _, line = self._next()
            report = self._parsed(line)
            if isinstance(report, Info):
                self.info = report.values
            elif isinstance(report, Ready):
                self.context, ready = report.max_context, True
            elif isinstance(report, Err | Fatal):
                raise self._error(line)
        if self.info.get("lanes") != 1:
            raise self._error("its INFO line lacks lanes=1")
        self._write("LANES")

    def _take(self, now: float, line: str) -> None:
        report = self._parsed(line)
        if isinstance(report, Err | Fatal | LaneErr):
            raise self._error(line)
        request = self._open.get(getattr(report, "slot", -1))
        if request is None:
            return
        if isinstance(report, SlotToken):
            request.times.append(now)
            request.tokens.append(report.id)
        elif isinstance(report, LaneProgress):
            request.reached = report.reached
        elif isinstance(report, LaneResume):
            request.reused = report.tokens
        elif isinstance(report, LaneDone):
            request.ended, request.finish, request.generated = now, report.finish, report.generated
            request.accepted, request.offered = report.drafts_accepted, report.drafts_offered
            if request.generated != len(request.tokens):
                raise self._error(f"{line}, but {len(request.tokens)} tokens came")
            del self._open[request.lane]

    def _parsed(self, line: str) -> Report | None:
        try:
            return parse_report(line)
        except EngineError as error:
            raise self._error(str(error)) from None

    def _next(self) -> tuple[float, str]:
        try:
            now, line = self._lines.get(timeout=SILENCE_S)
        except queue.Empty:
            raise self._error(f"no line for {SILENCE_S:.0f} s") from None
        if line is None:
            raise self._error(f"ended with exit code {self._process.wait()}")
        return now, line

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._error(f"ended with exit code {self._process.wait()}") from None

    def _error(self, what: str) -> SideError:
        return SideError(f"{self.name}: {what} (its log: {log_path(f'lanes {self.name}')})")

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put((time.perf_counter(), line.rstrip("\n")))
        self._lines.put((time.perf_counter(), None))
