"""How busy the machine is: processors, memory, the two processes, graphics cards. What cannot be read is None."""

import contextlib
import os
import time
from pathlib import Path
from typing import Any

_PAGE_S = 0.5
"""Loads are means since the last reading, which has to be at least so long ago."""


class Hardware:
    """Reads /proc, and NVIDIA's management library where the `nvidia-ml-py` package and a card are there."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._proc = root / "proc"
        self._ticks = float(os.sysconf("SC_CLK_TCK")) if hasattr(os, "sysconf") else 100.0
        self._before: dict[object, tuple[float, float]] = {}
        self._loads: dict[object, float] = {}
        self._cards = _Cards()

    def read(self, *, server: int, engine: int | None) -> dict[str, Any]:
        """All of it; loads in percent (of a process: of one core), sizes in MiB."""
        memory = self._memory()
        return {
            "cpu_percent": self._machine_load(),
            "cpu_count": os.cpu_count(),
            "load_1m": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
            "ram_total_mib": memory.get("MemTotal"),
            "ram_available_mib": memory.get("MemAvailable"),
            "server": self._process(server),
            "engine": self._process(engine) if engine is not None else None,
            "gpus": self._cards.read(),
        }

    def _memory(self) -> dict[str, int]:
        pairs = (line.split(":", 1) for line in _text(self._proc / "meminfo").splitlines() if ":" in line)
        return {name: int(value.split()[0]) // 1024 for name, value in pairs if name in ("MemTotal", "MemAvailable")}

    def _machine_load(self) -> float | None:
        words = _text(self._proc / "stat").partition("\n")[0].split()[1:9]
        if len(words) < 4:
            return None
        ticks = [float(word) for word in words]
        idle = ticks[3] + (ticks[4] if len(ticks) > 4 else 0.0)
        return self._load("machine", sum(ticks) - idle, sum(ticks))

    def _process(self, pid: int) -> dict[str, Any] | None:
        words = _text(self._proc / str(pid) / "stat").rpartition(")")[2].split()
        if len(words) < 22:
            return None
        page = os.sysconf("SC_PAGE_SIZE")
        busy = (float(words[11]) + float(words[12])) / self._ticks
        return {
            "pid": pid,
            "cpu_percent": self._load(pid, busy, time.monotonic()),
            "rss_mib": round(int(words[21]) * page / 2**20, 1),
            "threads": int(words[17]),
        }

    def _load(self, what: object, busy: float, clock: float) -> float | None:
        """Percent of `clock` that was `busy` since the last reading; None at the first."""
        before = self._before.get(what)
        enough = _PAGE_S * (self._ticks if what == "machine" else 1.0)
        if before is None or busy < before[0]:
            self._before[what] = (busy, clock)
        elif clock - before[1] >= enough:
            self._loads[what] = round(100 * (busy - before[0]) / (clock - before[1]), 1)
            self._before[what] = (busy, clock)
        return self._loads.get(what)


class _Cards:
    """NVIDIA's graphics cards; none where the library is not there."""

    def __init__(self) -> None:
        self._library: Any = None
        with contextlib.suppress(Exception):  # whatever an installation lacks: then there is no card to show
            import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]

            pynvml.nvmlInit()
            self._library = pynvml

    def read(self) -> list[dict[str, Any]]:
        if self._library is None:
            return []
        cards = []
        with contextlib.suppress(self._library.NVMLError):
            for index in range(self._library.nvmlDeviceGetCount()):
                cards.append(self._card(index))
        return cards

    def _card(self, index: int) -> dict[str, Any]:
        library = self._library
        card = library.nvmlDeviceGetHandleByIndex(index)
        name = library.nvmlDeviceGetName(card)
        memory = library.nvmlDeviceGetMemoryInfo(card)
        found: dict[str, Any] = {
            "name": name.decode() if isinstance(name, bytes) else name,
            "memory_total_mib": memory.total // 2**20,
            "memory_used_mib": memory.used // 2**20,
            "utilization_percent": None, "temperature_c": None, "power_w": None,
        }  # fmt: skip
        with contextlib.suppress(library.NVMLError):
            found["utilization_percent"] = library.nvmlDeviceGetUtilizationRates(card).gpu
        with contextlib.suppress(library.NVMLError):
            found["temperature_c"] = library.nvmlDeviceGetTemperature(card, library.NVML_TEMPERATURE_GPU)
        with contextlib.suppress(library.NVMLError):
            found["power_w"] = round(library.nvmlDeviceGetPowerUsage(card) / 1000, 1)
        return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
