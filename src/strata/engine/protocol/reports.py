"""Reports: the lines from the engine's stdout. The engine writes `Report.format()`, a client reads `parse_report`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar, Self

from strata.engine.protocol.report import Report, enough, logprobs, logprobs_text, value
from strata.engine.protocol.slots import (
    LaneDone,
    LaneErr,
    LaneProgress,
    LaneResume,
    SlotDone,
    SlotLogProb,
    SlotToken,
)
from strata.engine.protocol.words import shown, whole
from strata.errors import EngineError


@dataclass(frozen=True, slots=True)
class Info(Report):
    """`INFO k=v ...`: what was started; values are ints where they are all digits, else words."""

    values: Mapping[str, int | str]
    WORD: ClassVar[str] = "INFO"

    def format(self) -> str:
        return " ".join(["INFO", *(f"{key}={value}" for key, value in self.values.items())])

    @classmethod
    def parse(cls, rest: str) -> Self:
        pairs = (word.partition("=") for word in rest.split() if "=" in word)
        return cls({key: int(v) if re.fullmatch(r"[0-9]+", v) else v for key, _, v in pairs})


@dataclass(frozen=True, slots=True)
class Ready(Report):
    """`READY <max_context> stop`: requests may come; `stop` (stops True): STOP is honoured within a request."""

    max_context: int
    stops: bool = True
    WORD: ClassVar[str] = "READY"
    LEAST: ClassVar[int] = 1

    def format(self) -> str:
        return f"READY {self.max_context}" + (" stop" if self.stops else "")

    @classmethod
    def parse(cls, rest: str) -> Self:
        words = rest.split()
        enough(words, cls.LEAST)
        return cls(value("max_context", whole, words[0]), "stop" in words[1:])


@dataclass(frozen=True, slots=True)
class PoolState(Report):
    """`POOL <cells> <free> <main> <s0>,<s1>,...`: tokens of the KV pool and who holds how many, when that changed.

    `main` are held by the control lines' conversation, `slots` by theirs; without slots there stands `-`.
    """

    cells: int
    free: int
    main: int
    slots: tuple[int, ...] = ()
    WORD: ClassVar[str] = "POOL"
    LEAST: ClassVar[int] = 4

    def format(self) -> str:
        return f"POOL {self.cells} {self.free} {self.main} {','.join(map(str, self.slots)) or '-'}"

    @classmethod
    def parse(cls, rest: str) -> Self:
        words = rest.split()
        enough(words, cls.LEAST)
        cells, free, main = (value(n, whole, w) for n, w in zip(("cells", "free", "main"), words, strict=False))
        slots = [] if words[3] == "-" else words[3].split(",")
        return cls(cells, free, main, tuple(value("slots", whole, word) for word in slots))


@dataclass(frozen=True, slots=True)
class Saved(Report):
    """`SAVED <tokens> <bytes> <ms>`: the conversation of the control lines is in the file."""

    tokens: int
    size: int
    ms: float
    WORD: ClassVar[str] = "SAVED"
    LEAST: ClassVar[int] = 3


@dataclass(frozen=True, slots=True)
class Restored(Report):
    """`RESTORED <tokens> <bytes> <ms>`: the conversation of the control lines is the file's."""

    tokens: int
    size: int
    ms: float
    WORD: ClassVar[str] = "RESTORED"
    LEAST: ClassVar[int] = 3


@dataclass(frozen=True, slots=True)
class SessionError(Report):
    """`SERR <kind> <0 or 1> <reason>`: SAVE or RESTORE failed; `kind` is one of SESSION_ERRORS.

    `lost`: the conversation that was on the control lines is lost.
    """

    kind: str
    lost: bool
    reason: str
    WORD: ClassVar[str] = "SERR"
    LEAST: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class VramState(Report):
    """`VRAM k=v ...`: how the graphics card's memory is shared (MiB, experts, tokens); all 0 on a CPU."""

    reserve_mib: int = 0
    expert_slots: int = 0
    expert_slots_full: int = 0
    expert_cache_mib: int = 0
    expert_cache_full_mib: int = 0
    vram_free_mib: int = 0
    prompt_chunk: int = 0
    WORD: ClassVar[str] = "VRAM"

    def format(self) -> str:
        return " ".join(["VRAM", *(f"{f.name}={getattr(self, f.name)}" for f in fields(self))])

    @classmethod
    def parse(cls, rest: str) -> Self:
        pairs = {key: v for key, _, v in (word.partition("=") for word in rest.split())}
        return cls(*(value(f.name, whole, pairs.get(f.name, "")) for f in fields(cls)))


@dataclass(frozen=True, slots=True)
class Err(Report):
    """`ERR <reason>`: the request is refused or has failed; no DONE and no BADM follow."""

    reason: str
    WORD: ClassVar[str] = "ERR"


@dataclass(frozen=True, slots=True)
class Fatal(Report):
    """`FATAL <reason>`: the process ends with exit code 1."""

    reason: str
    WORD: ClassVar[str] = "FATAL"


@dataclass(frozen=True, slots=True)
class Token(Report):
    """`T <id>`: the next token of the request; of an admission, the first."""

    id: int
    WORD: ClassVar[str] = "T"
    LEAST: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class LogProb(Report):
    """`LP <logprob> [<id>:<logprob> ...]`: natural logarithms, of the token that follows and of the likeliest ones."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    WORD: ClassVar[str] = "LP"
    LEAST: ClassVar[int] = 1

    def format(self) -> str:
        return f"LP {logprobs_text(self.logprob, self.top)}"

    @classmethod
    def parse(cls, rest: str) -> Self:
        words = rest.split()
        enough(words, cls.LEAST)
        return cls(*logprobs(words))


@dataclass(frozen=True, slots=True)
class Progress(Report):
    """`PP <reached> <prompt> <ms> <tok/s>`: prompt tokens held of how many, ms since the start, speed of new ones."""

    reached: int
    prompt: int
    ms: float
    speed: float
    WORD: ClassVar[str] = "PP"
    LEAST: ClassVar[int] = 4


@dataclass(frozen=True, slots=True)
class Resume(Report):
    """`RESUME <n>`: the first n prompt tokens come from a kept conversation (what servers read)."""

    tokens: int
    WORD: ClassVar[str] = "RESUME"
    LEAST: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Reused(Report):
    """`REUSED <n>`: the same number (what the interleave test reads)."""

    tokens: int
    WORD: ClassVar[str] = "REUSED"
    LEAST: ClassVar[int] = 1


@dataclass(frozen=True, slots=True)
class Yielded(Report):
    """`YIELDED <slot> <tokens>`: the read gave way, the slot keeps so many tokens of it; DONE ... cancel follows."""

    slot: int
    tokens: int
    WORD: ClassVar[str] = "YIELDED"
    LEAST: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Done(Report):
    """`DONE ...`: the end of a request, or of an admission. Clients need six values; there is no cache of experts here.

    `finish` is one of FINISHES, times are ms.
    """

    generated: int
    prompt: int
    prompt_ms: float
    decode_ms: float
    finish: str
    drafts_accepted: int = 0
    drafts_offered: int = 0
    reused: int = 0
    hits: int = 0
    lookups: int = 0
    ram_blobs: int = 0
    file_blobs: int = 0
    file_mb: float = 0.0
    prompt_read: int = 0
    offloaded: int = 0
    WORD: ClassVar[str] = "DONE"
    LEAST: ClassVar[int] = 6


@dataclass(frozen=True, slots=True)
class Admitted(Report):
    """`BADM <slot> <1 or 0>`: after an admission's DONE. 1: the request goes on in the slot; 0: it has ended."""

    slot: int
    goes_on: bool
    WORD: ClassVar[str] = "BADM"
    LEAST: ClassVar[int] = 2


_REPORTS: Mapping[str, type[Report]] = {
    report.WORD: report
    for report in (
        Info, Ready, PoolState, Saved, Restored, SessionError, VramState, Err, Fatal,
        Token, LogProb, Progress, Resume, Reused, Yielded, Done, Admitted,
        SlotToken, SlotLogProb, SlotDone, LaneResume, LaneProgress, LaneErr,
    )
}  # fmt: skip


def parse_report(line: str) -> Report | None:
    """One line from an engine, in either form; None for a line that this version does not know (skip it).

    Raises EngineError when a known line has too few values or one of the wrong kind: engine and client are out of
    step. Further values at the end are skipped.
    """
    word, _, rest = line.strip().partition(" ")
    report = _REPORTS.get(word)
    if report is None:
        return None
    if report is SlotDone and len(rest.split()) >= LaneDone.LEAST:
        report = LaneDone
    try:
        return report.parse(rest)
    except ValueError as error:
        raise EngineError(f"The engine sent a line that cannot be read: {shown(line)} ({error}).") from None
