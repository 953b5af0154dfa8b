"""Commands: the lines to the engine's stdin. A client writes `Command.format()`, the engine reads `parse_command`."""

import base64
import binascii
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from strata.engine.protocol.words import LARGEST, real, real_or_minus_infinity, shown, switch, whole
from strata.errors import RequestError
from strata.text.grammar import KINDS, Grammar, Kind

EXPECTED = "expected: GEN <max_new> ..."
NO_SLOT = "BGEN: no such free slot (--batch N) or a bad max_new"
NO_VISION = "this engine was started without --vision"
# Clients count on it: a request is admitted if prompt + max_new leave this many positions of the context.
CONTEXT_RESERVE = 8

_IDS = re.compile(r"[0-9]{1,10}(?:[,\s]+[0-9]{1,10})*")
_KEY = re.compile(r"\s*([^\s=]*)=(\S*)")
_LARGEST_FP32 = float.fromhex("0x1.fffffep127")
# Within these two no logit is lost to an overflow of fp32, and so no request can make a NaN of its own.
_LARGEST_BIAS = 1e30
_LARGEST_PENALTY = 1e6
# Per-request tuning of engines that split the work with a graphics card; no token depends on it, so it may be skipped.
_TUNING = frozenset({"pcie_frac", "spec_min_p", "pcie_balance", "q8k_avx2", "batch_overlap", "pipeline_windows",
                     "prefill_pipe_k", "aux_cpus", "cpu_kernel", "pool_drain", "dflash_block"})  # fmt: skip


class BadRequest(RequestError):
    """A line that is no command; the text belongs after `ERR `, or after `BERR <slot> ` in lanes form.

    `slot`: the slot or lane of a BGEN line whose number could be read, and which this refusal ends. None for every
    other line, also for one like `BSTOP 3 now`: its slot goes on.
    """

    def __init__(self, reason: str, slot: int | None = None) -> None:
        super().__init__(reason)
        self.slot = slot


@dataclass(frozen=True, slots=True)
class Gen:
    """`GEN <max_new> [key=value ...] <ids>`: read a prompt and write at most `max_new` tokens.

    With a `slot` the line is `BGEN <slot> <max_new> ...`; after LANES that number is the request's lane.

    temperature <= 0 is greedy, and then the other ways to draw are without effect. top_k 0 keeps every token; seed 0
    is taken from the clock. The penalties count the last `penalty_last_n` tokens (-1 on the line: all of them, as in
    llama.cpp). `logit_bias`: (token id, addend) pairs, minus infinity bans the token. `logprobs`: how many of the most
    likely tokens are told with each token's log-probability; None: neither. `stop_ids` end the request as the engine's
    own end tokens do. `ckpt` False is a one-shot request, of which nothing is kept; `pin` N > 0 pins a checkpoint after
    N prompt tokens. `grammar`: what the reply has to match, token by token, or what follows the first
    `grammar_after` token in it does; with `grammar_optional` it may also end without that token. `skipped`: the names
    of keys that mean nothing here.
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
    logit_bias: tuple[tuple[int, float], ...] = ()
    logprobs: int | None = None
    stop_ids: tuple[int, ...] = ()
    cvec: bool = True
    ckpt: bool = True
    pin: int = 0
    grammar: Grammar | None = None
    grammar_after: int | None = None
    grammar_optional: bool = False
    slot: int | None = None
    skipped: tuple[str, ...] = field(default=(), compare=False)

    def format(self) -> str:
        """The line, with only the keys that differ from the defaults; floats keep every bit."""
        keys = [
            f"{f.name}={_value_text(getattr(self, f.name))}"
            for f in fields(self)
            if f.name in _KEYS and getattr(self, f.name) != f.default
        ]
        word = "GEN" if self.slot is None else f"BGEN {self.slot}"
        return " ".join([word, str(self.max_new), *keys, ",".join(map(str, self.ids))])


@dataclass(frozen=True, slots=True)
class Stop:
    """`STOP`: end the request on the control lines at its next window."""

    def format(self) -> str:
        return "STOP"


@dataclass(frozen=True, slots=True)
class BStop:
    """`BSTOP <slot>`: end the request of a slot or lane at its next window; nothing for an idle one."""

    slot: int

    def format(self) -> str:
        return f"BSTOP {self.slot}"


@dataclass(frozen=True, slots=True)
class BYield:
    """`BYIELD <slot>`: the prompt being read gives way at its next window; what it read is kept for the slot."""

    slot: int

    def format(self) -> str:
        return f"BYIELD {self.slot}"


@dataclass(frozen=True, slots=True)
class Save:
    """`SAVE <path>`: the conversation of the control lines to a file. Raises BadRequest for a path no line can carry.

    The path is everything after one space, to the end of the line.
    """

    path: str

    def __post_init__(self) -> None:
        _check_path("SAVE", self.path)

    def format(self) -> str:
        return f"SAVE {self.path}"


@dataclass(frozen=True, slots=True)
class Restore:
    """`RESTORE <path>`: the conversation of the control lines from a file; the path as for `Save`."""

    path: str

    def __post_init__(self) -> None:
        _check_path("RESTORE", self.path)

    def format(self) -> str:
        return f"RESTORE {self.path}"


@dataclass(frozen=True, slots=True)
class Vram:
    """`VRAM [<mib>]`: how the graphics card's memory is shared, after setting what is left free of it (MiB)."""

    reserve: int | None = None

    def format(self) -> str:
        return "VRAM" if self.reserve is None else f"VRAM {self.reserve}"


@dataclass(frozen=True, slots=True)
class Lanes:
    """`LANES`: from here on every line of a request carries its lane."""

    def format(self) -> str:
        return "LANES"


@dataclass(frozen=True, slots=True)
class Quit:
    """`QUIT`, or the end of the input: end the process after the requests already sent."""

    def format(self) -> str:
        return "QUIT"


Command = Gen | Stop | BStop | BYield | Save | Restore | Vram | Lanes | Quit


def _check_path(word: str, path: str) -> None:
    if not path.strip():
        raise BadRequest(f"bad request: {word} needs the path of a file")
    if re.search(r"[\n\r\0]", path):
        raise BadRequest(f"bad request: the path of {word} holds a line break or a NUL: {shown(path)}")


def _value_text(value: Any) -> str:
    if isinstance(value, Grammar):
        return f"{value.kind}:{base64.urlsafe_b64encode(value.text.encode()).decode()}"
    if isinstance(value, tuple):
        return ",".join(f"{v[0]}:{float(v[1])!r}" if isinstance(v, tuple) else str(v) for v in value)
    return str(int(value)) if isinstance(value, bool) else repr(value)


def _real(low: float, high: float) -> Callable[[str, str], float]:
    def parse(name: str, text: str) -> float:
        try:
            value = real(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            limits = f" from {low:g} to {high:g}" if high < _LARGEST_FP32 or math.isfinite(value) else ""
            raise BadRequest(f"bad request: {name}={shown(text)} is not a number{limits}")
        return value

    return parse


def _whole(high: int) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        try:
            return whole(text, high)
        except ValueError:
            raise BadRequest(f"bad request: {name}={shown(text)} is not a whole number from 0 to {high}") from None

    return parse


def _switch(name: str, text: str) -> bool:
    try:
        return switch(text)
    except ValueError:
        raise BadRequest(f"bad request: {name}={shown(text)} is neither 0 nor 1") from None


def _last_n(name: str, text: str) -> int:
    return LARGEST if text == "-1" else _whole(LARGEST)(name, text)


def _token_ids(name: str, text: str) -> tuple[int, ...]:
    return tuple(_token_id(name, word) for word in text.split(","))


def _token_id(name: str, text: str) -> int:
    try:
        return whole(text, LARGEST)
    except ValueError:
        raise BadRequest(f"bad request: {name}: {shown(text)} is not a token id (0 to {LARGEST})") from None


def _bias(name: str, text: str) -> tuple[tuple[int, float], ...]:
    found: dict[int, float] = {}
    for word in text.split(","):
        number, colon, addend = word.partition(":")
        if not colon:
            raise BadRequest(f"bad request: {name}: {shown(word)} is not <token id>:<number>")
        token = _token_id(name, number)
        try:
            value = real_or_minus_infinity(addend)
        except ValueError:
            value = math.nan
        if not (value == -math.inf or abs(value) <= _LARGEST_BIAS):
            limits = f"from {-_LARGEST_BIAS:g} to {_LARGEST_BIAS:g}"
            raise BadRequest(f"bad request: {name}: {shown(addend)} is neither a number {limits} nor -inf")
        if token in found:
            raise BadRequest(f"bad request: {name} names token {token} twice")
        found[token] = value
    return tuple(found.items())


def _grammar(name: str, text: str) -> Grammar:
    kind, _, code = text.partition(":")
    if kind not in KINDS:
        raise BadRequest(f"bad request: {name}: {shown(kind)} is none of {', '.join(KINDS)}")
    try:
        padded = code + "=" * (-len(code) % 4)
        return Grammar(cast(Kind, kind), base64.b64decode(padded, b"-_", validate=True).decode())
    except (binascii.Error, UnicodeDecodeError):
        raise BadRequest(f"bad request: {name}: what follows the kind is not base64url of a text in UTF-8") from None


_KEYS: Mapping[str, Callable[[str, str], Any]] = {
    "temperature": _real(-_LARGEST_FP32, _LARGEST_FP32),
    "top_p": _real(0, 1),
    "top_k": _whole(LARGEST),
    "min_p": _real(0, 1),
    "seed": _whole(2**64 - 1),
    "penalty_last_n": _last_n,
    "penalty_repeat": _real(1 / _LARGEST_PENALTY, _LARGEST_PENALTY),
    "penalty_freq": _real(-_LARGEST_PENALTY, _LARGEST_PENALTY),
    "penalty_present": _real(-_LARGEST_PENALTY, _LARGEST_PENALTY),
    "logit_bias": _bias,
    "logprobs": _whole(LARGEST),
    "stop_ids": _token_ids,
    "cvec": _switch,
    "ckpt": _switch,
    "pin": _whole(LARGEST),
    "grammar": _grammar,
    "grammar_after": _token_id,
    "grammar_optional": _switch,
}


def parse_command(line: str) -> Command:
    """One line from a client, in either form. Raises BadRequest with the text that belongs after `ERR `.

    Whether a slot exists, and whether a command may come now, is the engine's business.
    """
    word, _, path = line.lstrip().rstrip("\r\n").partition(" ")
    rest = path.strip()
    match word.rstrip():
        case "GEN":
            return _parse_gen(rest, None, EXPECTED)
        case "BGEN" | "BGENI" as word:
            return _parse_bgen(word, rest)
        case "GENI":
            raise BadRequest(NO_VISION)
        case "STOP" | "HANDOFF" if not rest:
            return Stop()
        case "BSTOP" | "BHANDOFF" as word:
            return BStop(_slot(word, rest))
        case "BYIELD":
            return BYield(_slot("BYIELD", rest))
        case "SAVE":
            return Save(path)
        case "RESTORE":
            return Restore(path)
        case "VRAM":
            return Vram(_mib(rest) if rest else None)
        case "LANES" if not rest:
            return Lanes()
        case "QUIT" if not rest:
            return Quit()
    raise BadRequest(EXPECTED)


def _slot(word: str, text: str) -> int:
    try:
        return whole(text, LARGEST)
    except ValueError:
        raise BadRequest(f"bad request: {word} needs a slot's number (0 to {LARGEST}), not {shown(text)}") from None


def _mib(text: str) -> int:
    try:
        return whole(text, LARGEST)
    except ValueError:
        raise BadRequest(f"bad request: VRAM takes a number of MiB (0 to {LARGEST}), not {shown(text)}") from None


def _parse_bgen(word: str, text: str) -> Gen:
    number, _, rest = text.partition(" ")
    try:
        slot = whole(number, LARGEST)
    except ValueError:
        raise BadRequest(NO_SLOT if word == "BGEN" else NO_VISION) from None
    if word == "BGENI":
        raise BadRequest(NO_VISION, slot)
    try:
        return _parse_gen(rest, slot, NO_SLOT)
    except BadRequest as error:
        raise BadRequest(str(error), slot) from None


def _parse_gen(text: str, slot: int | None, no_count: str) -> Gen:
    count, _, rest = text.strip().partition(" ")
    if not re.fullmatch(r"-?[0-9]{1,10}", count):
        raise BadRequest(no_count)
    keys: dict[str, Any] = {}
    skipped: list[str] = []
    at = 0
    while key := _KEY.match(rest, at):
        at = key.end()
        name, value = key.groups()
        if name in _KEYS:
            keys[name] = _KEYS[name](name, value)
        elif name not in _TUNING:
            skipped.append(name)
    return Gen(int(count), parse_ids(rest[at:]), slot=slot, skipped=tuple(skipped), **keys)


def parse_ids(text: str) -> tuple[int, ...]:
    """Token ids separated by commas or spaces. Raises BadRequest naming the first piece that is none."""
    text = text.strip()
    if not _IDS.fullmatch(text):
        pieces = re.split(r"[,\s]+", text)
        wrong = next((p for p in pieces if not re.fullmatch(r"[0-9]{1,10}", p)), "")
        raise BadRequest("bad request: " + (f"{shown(wrong)} is not a token id" if text else "the prompt is empty"))
    ids = tuple(map(int, text.replace(",", " ").split()))
    if max(ids) > LARGEST:
        raise BadRequest(f"bad request: {max(ids)} is not a token id: ids end at {LARGEST}")
    return ids
