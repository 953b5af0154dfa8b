"""One thread's limits on this machine, measured by a small C program: memory read and int8 multiply-adds."""

import ctypes
import hashlib
import mmap
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("machine.c")
BYTES = 1 << 29
ROUNDS = 20_000_000
CACHE = Path.home() / ".cache" / "strata-benchmarks"  # random models, peers


class Machine:
    """Measures the limits again whenever asked: on a shared machine they move."""

    def __init__(self, cache: Path) -> None:
        self._lib = ctypes.CDLL(str(_build(cache)))
        self._lib.read_all.restype = self._lib.int8_macs.restype = ctypes.c_double
        self._lib.read_all.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._lib.int8_macs.argtypes = [ctypes.c_long]
        self._memory = mmap.mmap(-1, BYTES)
        self._memory.write(b"\1" * BYTES)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    def read_bandwidth(self) -> float:
        """Bytes a second that one thread reads from memory (4 KiB pages, as a mapped file): the best of six passes."""
        seconds = [self._lib.read_all(self._address, BYTES, streams) for streams in (1, 2, 8) for _ in range(2)]
        return BYTES / min(seconds)

    def int8_peak(self) -> float:
        """int8 multiply-adds a second of one thread, the best of three passes."""
        return max(self._lib.int8_macs(ROUNDS) for _ in range(3))


def describe() -> str:
    """Processor, cores, memory, kernel."""
    info = Path("/proc/cpuinfo").read_text()
    model = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), "?")
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    flags = next((line for line in info.splitlines() if line.startswith("flags")), "").split()
    sets = [f for f in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512vbmi", "amx_int8") if f in flags]
    return f"{model}, {os.cpu_count()} cores, {gib:.0f} GiB, {' '.join(sets)}, Linux {platform.release()}"


def conditions() -> dict[str, Any]:
    """What the JSON of every benchmark begins with: the machine and its load averages."""
    return {"machine": describe(), "load": [round(x, 2) for x in os.getloadavg()]}


def _build(cache: Path) -> Path:
    """The library of machine.c for this processor, compiled once a source."""
    key = hashlib.sha256(SOURCE.read_bytes() + describe().encode()).hexdigest()[:12]
    library = cache / f"machine-{key}.so"
    if not library.exists():
        command = [os.environ.get("CC", "cc"), "-O3", "-march=native", "-shared", "-fPIC", str(SOURCE), "-o"]
        subprocess.run([*command, str(library)], check=True)
    return library
