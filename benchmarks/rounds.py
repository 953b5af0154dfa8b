"""Interleaved rounds of several sides: a process each, one measured at a time, what else ran on the machine noted."""

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class SideError(Exception):
    """A side could not do what was asked of it."""


class Side:
    """A process that runs one of `benchmarks.sides` in an interpreter, and waits for requests."""

    def __init__(self, name: str, module: str, python: str | Path = sys.executable) -> None:
        self.name = name
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self._log = open(log_path(name), "w")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(python), "-m", f"benchmarks.sides.{module}"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.cpu = 0.0  # seconds of the last request

    def ask(self, op: str, **arguments: Any) -> Any:
        """The value that the side's operation returns."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            self.stop()
            raise SideError(f"{self.name} ended with exit code {code} during {op}; its log: {log_path(self.name)}")
        reply = json.loads(line)
        if "error" in reply:
            raise SideError(f"{self.name}, {op}: {reply['error']} (its log: {log_path(self.name)})")
        self.cpu = reply["cpu"]
        return reply["value"]

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        wait_or_kill(self._process)
        self._process.stdout.close()
        self._log.close()


def wait_or_kill(process: "subprocess.Popen[str]") -> None:
    """Give a process that was told to end 20 seconds for it."""
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def log_path(name: str) -> Path:
    """Where a side's own messages go."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / "strata-benchmarks"
    folder.mkdir(exist_ok=True)
    return folder / f"{name.replace(' ', '-')}.log"


@dataclass
class Series:
    """One case of one side: the value of every round, and cores that others kept busy meanwhile."""

    values: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median of the rounds."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """(largest - smallest) / median."""
        return (max(self.values) - min(self.values)) / self.median


class Watch:
    """How many cores other processes kept busy while one side was measured."""

    def __init__(self) -> None:
        self._busy, self._start = _busy_seconds(), time.monotonic()

    def others(self, own: float) -> float:
        """Cores busy since the start, less `own` CPU seconds of the measured side."""
        wall = time.monotonic() - self._start
        return max(0.0, _busy_seconds() - self._busy - own) / max(wall, 1e-9)


def _busy_seconds() -> float:
    """CPU seconds of all cores since boot, niced processes included; idle, waiting and stolen time left out."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, softirq = (int(x) for x in fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def rotated(items: list[Any], by: int) -> list[Any]:
    """The items, begun with another one every round, so that no side is always the first."""
    by %= len(items)
    return items[by:] + items[:by]


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    return statistics.geometric_mean(values)
