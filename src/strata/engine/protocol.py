"""Every line between the server and the engine: parsed and formatted here, both ways, by both sides. Pure.

Commands go to the engine's stdin, reports come from its stdout; one line each, UTF-8, ids in decimal. The engine reads
commands with `parse_command` and writes `Report.format()`; a client writes `Command.format()` and reads `parse_report`.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from strata.errors import EngineError, RequestError

EXPECTED = "expected: GEN <max_new> ..."
NO_SLOT = "BGEN: no such free slot (--batch N) or a bad max_new"
NO_VISION = "this engine was started without --vision"
# Clients count on it: a request is admitted if prompt + max_new leave this many positions of the context.
CONTEXT_RESERVE = 8
FINISHES = ("stop", "length", "cancel", "pool", "handoff")

_IDS = re.compile(r"[0-9]{1,10}(?:[,\s]+[0-9]{1,10})*")
_LARGEST_ID = 2**31 - 1
_SHOWN = 40
# Per-request tuning of engines that split the work with a graphics card; no token depends on it, so it may be skipped.
_TUNING = frozenset({"pcie_frac", "spec_min_p", "pcie_balance", "q8k_avx2", "batch_overlap", "pipeline_windows",
                     "prefill_pipe_k", "aux_cpus", "cpu_kernel", "pool_drain", "dflash_block"})  # fmt: skip


def one_line(text: str) -> str:
    """`text` without line breaks: what an ERR or FATAL line may carry."""
    return " ".join(text.split())


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


# --------------------------------------------------------------------------------------------------- to the engine


@dataclass(frozen=True, slots=True)
class Gen:
    """`GEN <max_new> [key=value ...] <ids>`: read a prompt and write at most `max_new` tokens.

    temperature <= 0 is greedy, and then the other sampling values are without effect. top_k 0 keeps every token; seed 0
    is taken from the clock. `ckpt` False is a one-shot request, of which nothing is kept; `pin` N > 0 pins a checkpoint
    after N prompt tokens.
    """

    max_new: int
    ids: tuple[int, ...]
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 20
    min_p: float = 0.0
    seed: int = 0
    penalty_last_n: int = 0
    penalty_repeat: float = 1.0
    penalty_freq: float = 0.0
    penalty_present: float = 0.0
    cvec: bool = True
    ckpt: bool = True
    pin: int = 0
    skipped: tuple[str, ...] = field(default=(), compare=False)

    def format(self) -> str:
        """The line, with only the keys that differ from the defaults; floats keep every bit."""
        keys = [
            f"{f.name}={_value_text(getattr(self, f.name))}"
            for f in fields(self)
            if f.name in _KEYS and getattr(self, f.name) != f.default
        ]
        return " ".join(["GEN", str(self.max_new), *keys, ",".join(map(str, self.ids))])


@dataclass(frozen=True, slots=True)
class Stop:
    """`STOP`: end the request in progress at its next window."""

    def format(self) -> str:
        return "STOP"


@dataclass(frozen=True, slots=True)
class Quit:
    """`QUIT`, or the end of the input: end the process after the requests already sent."""

    def format(self) -> str:
        return "QUIT"


@dataclass(frozen=True, slots=True)
class Ignored:
    """A line that asks nothing of this engine and gets no answer; `why` goes to the log."""

    why: str


Command = Gen | Stop | Quit | Ignored


def _value_text(value: float | bool) -> str:
    return str(int(value)) if isinstance(value, bool) else repr(value)


def _real(low: float = -math.inf, high: float = math.inf) -> Callable[[str, str], float]:
    def parse(name: str, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and low <= value <= high):
            limits = f" from {low:g} to {high:g}" if math.isfinite(high) else ""
            raise RequestError(f"bad request: {name}={_shown(text)} is not a number{limits}")
        return value

    return parse


def _whole(high: int) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,20}", text) or int(text) > high:
            raise RequestError(f"bad request: {name}={_shown(text)} is not a whole number from 0 to {high}")
        return int(text)

    return parse


def _switch(name: str, text: str) -> bool:
    if text not in ("0", "1"):
        raise RequestError(f"bad request: {name}={_shown(text)} is neither 0 nor 1")
    return text == "1"


_KEYS: Mapping[str, Callable[[str, str], Any]] = {
    "temperature": _real(),
    "top_p": _real(0, 1),
    "top_k": _whole(_LARGEST_ID),
    "min_p": _real(0, 1),
    "seed": _whole(2**64 - 1),
    "penalty_last_n": _whole(_LARGEST_ID),
    "penalty_repeat": _real(),
    "penalty_freq": _real(),
    "penalty_present": _real(),
    "cvec": _switch,
    "ckpt": _switch,
    "pin": _whole(_LARGEST_ID),
}


def parse_command(line: str) -> Command:
    """One line from a client. Raises RequestError with the text that belongs after `ERR `."""
    word, _, rest = line.strip().partition(" ")
    match word:
        case "GEN":
            return _parse_gen(rest)
        case "STOP" if not rest:
            return Stop()
        case "QUIT" if not rest:
            return Quit()
        case "BGEN" | "BGENI":
            raise RequestError(NO_SLOT)
        case "GENI":
            raise RequestError(NO_VISION)
        case "BSTOP" | "BYIELD":
            return Ignored(f"{word}: no slot is decoding and no read is in flight that could give way to one")
    raise RequestError(EXPECTED)


def _parse_gen(text: str) -> Gen:
    count, _, rest = text.strip().partition(" ")
    if not re.fullmatch(r"-?[0-9]{1,10}", count):
        raise RequestError(EXPECTED)
    keys: dict[str, Any] = {}
    skipped: list[str] = []
    rest = rest.lstrip()
    while rest and "=" in (word := rest.split(maxsplit=1)[0]):
        rest = rest[len(word) :].lstrip()
        name, _, value = word.partition("=")
        if name in _KEYS:
            keys[name] = _KEYS[name](name, value)
        elif name not in _TUNING:
            skipped.append(name)
    return Gen(int(count), parse_ids(rest), skipped=tuple(skipped), **keys)


def parse_ids(text: str) -> tuple[int, ...]:
    """Token ids separated by commas or spaces. Raises RequestError naming the first piece that is none."""
    text = text.strip()
    if not _IDS.fullmatch(text):
        pieces = re.split(r"[,\s]+", text)
        wrong = next((p for p in pieces if not re.fullmatch(r"[0-9]{1,10}", p)), "")
        raise RequestError("bad request: " + (f"{_shown(wrong)} is not a token id" if text else "the prompt is empty"))
    ids = tuple(map(int, text.replace(",", " ").split()))
    if max(ids) > _LARGEST_ID:
        raise RequestError(f"bad request: {max(ids)} is not a token id: ids end at {_LARGEST_ID}")
    return ids


# ------------------------------------------------------------------------------------------------- from the engine


class Report:
    """One line from the engine: a word and its values, in the order of the class's fields."""

    __slots__ = ()
    WORD: ClassVar[str]

    def format(self) -> str:
        values = [getattr(self, f.name) for f in fields(self)]  # type: ignore[arg-type]
        return " ".join([self.WORD, *(f"{v:.1f}" if isinstance(v, float) else str(v) for v in values)])


@dataclass(frozen=True, slots=True)
class Info(Report):
    """`INFO k=v ...`: what was started; values are ints where they are all digits, else words."""

    values: Mapping[str, int | str]
    WORD: ClassVar[str] = "INFO"

    def format(self) -> str:
        return " ".join(["INFO", *(f"{key}={value}" for key, value in self.values.items())])


@dataclass(frozen=True, slots=True)
class Ready(Report):
    """`READY <max_context> stop`: requests may come; `stop` (stops True): STOP is honoured within a request."""

    max_context: int
    stops: bool = True
    WORD: ClassVar[str] = "READY"

    def format(self) -> str:
        return f"READY {self.max_context}" + (" stop" if self.stops else "")


@dataclass(frozen=True, slots=True)
class Token(Report):
    """`T <id>`: the next token of the request."""

    id: int
    WORD: ClassVar[str] = "T"


@dataclass(frozen=True, slots=True)
class Progress(Report):
    """`PP <reached> <prompt> <ms> <tok/s>`: prompt tokens held of how many, ms since the start, speed of new ones."""

    reached: int
    prompt: int
    ms: float
    speed: float
    WORD: ClassVar[str] = "PP"


@dataclass(frozen=True, slots=True)
class Resume(Report):
    """`RESUME <n>`: the first n prompt tokens come from a kept conversation (what servers read)."""

    tokens: int
    WORD: ClassVar[str] = "RESUME"


@dataclass(frozen=True, slots=True)
class Reused(Report):
    """`REUSED <n>`: the same number (what the interleave test reads)."""

    tokens: int
    WORD: ClassVar[str] = "REUSED"


@dataclass(frozen=True, slots=True)
class Done(Report):
    """`DONE ...`: the end of a request. Clients need six fields; engines without caches of experts report zeros."""

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


@dataclass(frozen=True, slots=True)
class Err(Report):
    """`ERR <reason>`: the request is refused or has failed; no DONE follows, the engine is idle."""

    reason: str
    WORD: ClassVar[str] = "ERR"

    def format(self) -> str:
        return f"ERR {one_line(self.reason)}"


@dataclass(frozen=True, slots=True)
class Fatal(Report):
    """`FATAL <reason>`: the process ends with exit code 1."""

    reason: str
    WORD: ClassVar[str] = "FATAL"

    def format(self) -> str:
        return f"FATAL {one_line(self.reason)}"


_SENTENCES: Mapping[str, type[Err] | type[Fatal]] = {"ERR": Err, "FATAL": Fatal}
_NUMBERS: Mapping[str, tuple[type[Report], int]] = {
    "T": (Token, 1),
    "PP": (Progress, 4),
    "RESUME": (Resume, 1),
    "REUSED": (Reused, 1),
    "DONE": (Done, 6),
}


def parse_report(line: str) -> Report | None:
    """One line from an engine; None for a line that this version does not know (skip it).

    Raises EngineError when a known line has too few fields or values of the wrong kind: engine and client are out of
    step. Further fields at the end are skipped.
    """
    word, _, rest = line.strip().partition(" ")
    if word in _SENTENCES:
        return _SENTENCES[word](rest.strip())
    words = rest.split()
    try:
        if word == "INFO":
            pairs = (w.partition("=") for w in words if "=" in w)
            return Info({key: int(v) if re.fullmatch(r"[0-9]+", v) else v for key, _, v in pairs})
        if word == "READY":
            return Ready(int(words[0]), "stop" in words[1:])
        if word not in _NUMBERS:
            return None
        report, least = _NUMBERS[word]
        return report(*_values(report, words, least))
    except (ValueError, IndexError):
        raise EngineError(f"The engine sent a line that cannot be read: {_shown(line)}.") from None


def _values(report: type[Report], words: Sequence[str], least: int) -> list[int | float | str]:
    if len(words) < least:
        raise ValueError(words)
    kinds = [f.type for f in fields(report)]  # type: ignore[arg-type]
    values = [kind(word) for kind, word in zip(kinds, words, strict=False)]  # type: ignore[operator]
    if report is Done and values[4] not in FINISHES:
        raise ValueError(values[4])
    return values
