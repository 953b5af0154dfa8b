"""`strata serve` as a process of its own, and what the system says of it and its engine."""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.rounds import ROOT, SideError, log_path, wait_or_kill

START_S = 120.0


class Served:
    """A running server with its engine. `profile`: where cProfile writes what the server's process did."""

    def __init__(self, model: Path, *, threads: int, context: int, name: str = "server", profile: Path | None = None):
        python = [sys.executable, *(["-m", "cProfile", "-o", str(profile)] if profile else [])]
        words = ["serve", "--port", "0", "--threads", str(threads), "--context", str(context), "--model", str(model)]
        paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self._log_path = log_path(name)
        self._log = open(self._log_path, "w")  # noqa: SIM115
        self._process = subprocess.Popen(
            [*python, "-m", "strata.cli", *words],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self._process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self._process.stdout.readline())
        if found is None:
            self.close()
            raise SideError(f"the server did not start; its log: {self._log_path}")
        self.port = int(found[1])

    @property
    def pid(self) -> int:
        """The process that speaks HTTP."""
        return self._process.pid

    def engine_pid(self) -> int | None:
        """The engine's process, None while there is none."""
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{self.pid}/task").iterdir():
                for child in (task / "children").read_text().split():
                    return int(child)
        return None

    def pids(self) -> list[int]:
        """Both processes."""
        engine = self.engine_pid()
        return [self.pid, *([engine] if engine is not None else [])]

    def get(self, path: str) -> Any:
        """An answer in JSON, whatever its status; None when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)
        except OSError:
            return None

    def wait_idle(self, limit_s: float = 60.0) -> None:
        """Until the engine is ready and has nothing to do."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            status = self.get("/v1/status")
            if status is not None and status["loaded"] and not status["activity"]["in_flight"]:
                return
            time.sleep(0.1)
        raise SideError(f"the server was not idle within {limit_s:.0f} s; its log: {self._log_path}")

    def log(self) -> str:
        """What it wrote to stderr."""
        return self._log_path.read_text(errors="replace")

    def close(self) -> None:
        """End it as Ctrl-C does."""
        if self._process.poll() is None:
            self._process.send_signal(2)
        wait_or_kill(self._process)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Memory of a process that is in RAM and its own, in MiB."""
    line = re.search(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    if line is None:
        raise SideError(f"/proc/{pid}/status has no RssAnon")
    return int(line[1]) / 1024
