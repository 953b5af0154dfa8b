"""How much memory this process may still take: the system's, and that of its control groups."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes that can be taken without swapping: MemAvailable, and what each control group above us has left.

    Pages of files count as free, since the system takes them back. None where /proc/meminfo does not say.
    """
    known = _numbers(root / "proc/meminfo").get("MemAvailable:")
    if known is None:
        return None
    return max(0, min([known * 1024, *_groups(root)]))


def _groups(root: Path) -> Iterator[int]:
    """Bytes left of the limits of the control groups that this process is in, both versions of the interface."""
    for line in _lines(root / "proc/self/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            yield from _left(root / "sys/fs/cgroup", path, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            yield from _left(mount, path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


def _left(mount: Path, path: str, limit: str, usage: str, prefix: str) -> Iterator[int]:
    # Inside a container the path may be that of the host: then only the mount itself can be read.
    place = PurePosixPath(path)
    for part in (place, *place.parents):
        group = mount / str(part).lstrip("/")
        top, used = _first(group / limit), _first(group / usage)
        if top is not None and used is not None:
            stat = _numbers(group / "memory.stat")
            files = stat.get(f"{prefix}inactive_file", 0) + stat.get(f"{prefix}active_file", 0)
            yield top - max(0, used - files)


def _first(path: Path) -> int | None:
    """The number that a file holds; None for a missing file and for "max"."""
    text = next(iter(_lines(path)), "").strip()
    return int(text) if text.isdigit() else None


def _numbers(path: Path) -> dict[str, int]:
    """The first number after each name of a file of `name number` lines."""
    words = (line.split() for line in _lines(path))
    return {w[0]: int(w[1]) for w in words if len(w) > 1 and w[1].isdigit()}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
