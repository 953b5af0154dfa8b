"""How much memory the machine has to give."""

from pathlib import Path


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes that may be allocated without swapping: the system's, and within the control group's limit.

    Linux (/proc/meminfo, control groups 2); elsewhere, where nothing is known, 2**62. `root` is for tests.
    """
    known = [2**62]
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
        known += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError, IndexError):
        pass
    try:
        group = root / "sys/fs/cgroup"
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            known.append(max(0, int(limit) - int((group / "memory.current").read_text())))
    except (OSError, ValueError):
        pass
    return min(known)
