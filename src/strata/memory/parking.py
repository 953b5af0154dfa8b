"""Idle conversations outside the pool: in RAM, then in files. What does not fit anywhere is lost, and the log says so.

A parked conversation keeps its states as they are (on the CPU their chunks are RAM already, so parking copies nothing);
when the RAM's share is used up, the longest unused goes to a file of the spill directory, and when that is full, the
longest unused file goes. Files are found again at the next start.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Generic

import numpy as np

from strata import logs
from strata.errors import UsageError
from strata.machine import available_memory
from strata.memory import files
from strata.memory.files import ConversationFileError, Origin, S
from strata.memory.state import State
from strata.memory.tokens import Tokens, packed
from strata.units import bytes_text

MOST_WRITES = 2
"""Conversations waiting for their file at a time; they are in RAM meanwhile, beyond its limit."""

log = logs.get("memory")


@dataclass(frozen=True, slots=True)
class ParkingLimits:
    """`ram_bytes` (--conversation-cache-mib; 0: none in RAM), `slots` (-slots: how many in RAM), `min_free_bytes`
    (-min-free-mib: memory the machine has to keep), `directory` of files (None: no files) and what they may take."""

    ram_bytes: int = 0
    slots: int = 4
    min_free_bytes: int = 2560 << 20
    directory: Path | None = None
    disk_bytes: int = 8192 << 20

    @property
    def on(self) -> bool:
        return self.ram_bytes > 0 or self.directory is not None


@dataclass(eq=False, slots=True)
class Parked(Generic[S]):
    """One conversation: the lengths of its states (longest first), and the states, or the file they are in, or both.

    `older` are files of its earlier turns, which go once it has a file itself.
    """

    tokens: Tokens
    lengths: tuple[int, ...]
    size: int
    states: list[S] | None = None
    path: Path | None = None
    disk: int = 0
    older: list["Parked[S]"] = field(default_factory=list)


class Parking(Generic[S]):
    """The parked conversations, longest unused first. `new` makes an empty state; `lost` hears of each that is gone."""

    def __init__(
        self,
        limits: ParkingLimits,
        origin: Origin,
        new: Callable[[], S],
        lost: Callable[[Parked[S]], None],
        *,
        available: Callable[[], int | None] = available_memory,
    ) -> None:
        self.limits = limits
        self._origin = origin
        self._new = new
        self._lost = lost
        self._available = available
        self._parked: list[Parked[S]] = []
        self._writing: dict[Parked[S], Future[tuple[Path, int, float]]] = {}
        self._writer = ThreadPoolExecutor(1, "parking")

    def __iter__(self) -> Iterator[Parked[S]]:
        return iter(list(self._parked))

    @property
    def ram_bytes(self) -> int:
        return sum(parked.size for parked in self._parked if parked.states is not None)

    @property
    def disk_bytes(self) -> int:
        return sum(parked.disk for parked in self._parked)

    def find(self) -> list[Parked[S]]:
        """The conversations whose files an earlier engine left, longest unused first; damaged files are removed.

        UsageError if the directory cannot be made or read.
        """
        directory = self.limits.directory
        if directory is None:
            return []
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for path in files.unfinished(directory):
                path.unlink(missing_ok=True)
            paths = sorted(directory.glob(f"*{files.SUFFIX}"), key=lambda path: path.stat().st_mtime_ns)
        except OSError as error:
            raise UsageError(f"The spill directory {directory} cannot be used: {error.strerror}.") from None
        for path in paths:
            try:
                saved = files.look(path, self._origin)
            except ConversationFileError as error:
                self._say_lost(error)
                if "damaged" in str(error):
                    path.unlink(missing_ok=True)
                continue
            self._parked.append(Parked(saved.tokens, saved.lengths, 0, path=path, disk=saved.size))
        found = len(self._parked)
        self._fit_disk()
        if found:
            log.info("%d parked conversations found in %s (%s)", found, directory, bytes_text(self.disk_bytes))
        return list(self._parked)

    def park(
        self, tokens: Tokens, states: Sequence[S], size: int, older: Sequence[Parked[S]] = ()
    ) -> Parked[S]:
        """Keep the states of one conversation (longest first, `size` bytes in RAM); call `fit` after it."""
        for state in states:
            state.settle()
        lengths = tuple(state.length for state in states)
        parked = Parked(tokens, lengths, size, states=list(states), older=list(older))
        self._parked.append(parked)
        return parked

    def touch(self, parked: Parked[S]) -> None:
        """It was used, if it is still there."""
        if parked not in self._parked:
            return
        self._parked.remove(parked)
        self._parked.append(parked)
        if parked.path is not None:
            try:
                os.utime(parked.path)
            except OSError as error:
                log.warning("%s: its time of use cannot be noted (%s)", parked.path, error.strerror)

    def states(self, parked: Parked[S]) -> list[S]:
        """Copies of the states, or those in the file; it stays parked. ConversationFileError: it is lost (and said)."""
        if parked.states is not None:
            return [state.copy() for state in parked.states]  # the writer may be reading the states themselves
        assert parked.path is not None
        begun = time.perf_counter()
        try:
            states = files.read(parked.path, self._origin, self._new)
            same = np.array_equal(packed(states[0].tokens), parked.tokens)
            if not same or tuple(s.length for s in states) != parked.lengths:
                raise ConversationFileError("invalid", f"{parked.path} was replaced by another conversation.")
        except ConversationFileError as error:
            self._say_lost(error)
            self.drop(parked)
            raise
        took = time.perf_counter() - begun
        log.info(
            "restored %d tokens (%s, %.2f GB/s) in %.1f ms from %s",
            len(parked.tokens), bytes_text(parked.disk), parked.disk / took / 1e9, took * 1000, parked.path.name,
        )  # fmt: skip
        return states

    def drop(self, parked: Parked[S]) -> None:
        """It is not needed any more, or lost: RAM and file go."""
        self._forget_file(parked)
        self._remove(parked)

    def leave_ram(self, parked: Parked[S]) -> None:
        """Its states went back to the pool; a file stays, for whatever happens to them there."""
        parked.states = None
        if parked.path is None:
            self._remove(parked)

    def fit(self) -> None:
        """Keep within the limits of RAM: longest unused first into files, or lost where there is no directory.

        Files are written beside the engine's work; only when two are waiting already does this wait for one.
        """
        self.collect()
        while self._too_much() and (oldest := self._first_in_ram()) is not None:
            self._spill(oldest)

    def collect(self) -> None:
        """Note the files that were written since; call it between windows."""
        for parked in [parked for parked in self._writing if self._writing[parked].done()]:
            self._written(parked)

    def close(self) -> None:
        """The engine ends: everything in RAM goes to files, if there is a directory for them."""
        if self.limits.directory is not None:
            while (oldest := self._first_in_ram()) is not None:
                self._spill(oldest)
        for parked in list(self._writing):
            self._written(parked)
        self._writer.shutdown()

    def _first_in_ram(self) -> Parked[S] | None:
        return next((one for one in self._parked if one.states is not None and one not in self._writing), None)

    def _too_much(self) -> bool:
        held = [one.size for one in self._parked if one.states is not None and one not in self._writing]
        if sum(held) > self.limits.ram_bytes or len(held) > self.limits.slots:
            return True
        available = self._available() if held else None  # None: unknown, or not asked for
        return available is not None and available < self.limits.min_free_bytes

    def _spill(self, parked: Parked[S]) -> None:
        """From RAM to a file, or lost."""
        directory, states = self.limits.directory, parked.states
        assert states is not None
        if directory is None:
            log.info("a parked conversation of %d tokens gave way to others", len(parked.tokens))
            self._remove(parked)
        elif parked.path is not None:
            parked.states = None
        else:
            while len(self._writing) >= MOST_WRITES:
                self._written(next(iter(self._writing)))
            path = directory / (_name(parked.tokens) + files.SUFFIX)
            self._writing[parked] = self._writer.submit(_write, path, list(states), self._origin)

    def _written(self, parked: Parked[S]) -> None:
        """A file is complete (waited for), or cannot be written: then the conversation is lost, if nobody took it."""
        writing = self._writing.pop(parked)
        try:
            path, size, took = writing.result()
        except ConversationFileError as error:
            if parked in self._parked and parked.states is not None:
                self._say_lost(error)
                self._remove(parked)
            return
        log.info(
            "spilled %d tokens (%s, %.2f GB/s) in %.1f ms to %s",
            len(parked.tokens), bytes_text(size), size / took / 1e9, took * 1000, path.name,
        )  # fmt: skip
        for other in [other for other in self._parked if other.path == path]:
            other.path, other.disk = None, 0
            if other.states is None:
                self._remove(other)
        if parked not in self._parked:  # taken while it was written
            path.unlink(missing_ok=True)
            return
        parked.states, parked.path, parked.disk = None, path, size
        for one in [one for one in parked.older if one in self._parked and one is not parked]:
            self.drop(one)
        parked.older = []
        self._fit_disk()

    def _fit_disk(self) -> None:
        while self.disk_bytes > self.limits.disk_bytes:
            oldest = next(parked for parked in self._parked if parked.path is not None)
            log.info("the file of a parked conversation of %d tokens gave way to others", len(oldest.tokens))
            self._forget_file(oldest)
            if oldest.states is None:
                self._remove(oldest)

    def _forget_file(self, parked: Parked[S]) -> None:
        if parked.path is not None:
            try:
                parked.path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("%s cannot be removed: %s", parked.path, error.strerror)
            parked.path, parked.disk = None, 0

    def _remove(self, parked: Parked[S]) -> None:
        parked.states = None
        if parked in self._parked:
            self._parked.remove(parked)
            self._lost(parked)

    def _say_lost(self, error: ConversationFileError) -> None:
        log.warning("a parked conversation is lost: %s", error)


def _write(path: Path, states: Sequence[State], origin: Origin) -> tuple[Path, int, float]:
    """The writer's work: path, bytes, seconds."""
    begun = time.perf_counter()
    size = files.write(path, states, origin)
    return path, size, max(time.perf_counter() - begun, 1e-9)


def _name(tokens: Tokens) -> str:
    """A file name for a conversation: the same tokens, the same name."""
    return f"{len(tokens)}-{blake2b(tokens.tobytes(), digest_size=12).hexdigest()}"
