"""What all reports have in common: a word, then values in the order of a class's fields."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Self

from strata.engine.protocol.words import one_line, real, real_or_minus_infinity, shown, switch, whole

FINISHES = ("stop", "length", "cancel", "pool", "handoff")
SESSION_ERRORS = ("invalid", "memory", "storage", "io")

_KINDS: Mapping[object, Callable[[str], Any]] = {int: whole, int | None: whole, float: real, bool: switch, str: str}
_CHOICES: Mapping[str, Sequence[str]] = {"finish": FINISHES, "kind": SESSION_ERRORS}


class Report:
    """One line from the engine: a word and its values, in the order of the class's fields.

    `LEAST`: how many values the line must have. A `slot` is the number of the BGEN line: after LANES, the lane.
    """

    __slots__ = ()
    WORD: ClassVar[str]
    LEAST: ClassVar[int] = 0

    def format(self) -> str:
        """The line: floats with one decimal, switches as 1 or 0; values that are None are left out."""
        values = (getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]
        return " ".join([self.WORD, *(_text(value) for value in values if value is not None)])

    @classmethod
    def parse(cls, rest: str) -> Self:
        """From what follows the word. Raises ValueError, with what is wrong, if it is no such line."""
        kinds = {f.name: _KINDS[f.type] for f in fields(cls)}  # type: ignore[arg-type]
        words = rest.split(maxsplit=len(kinds) - 1 if "reason" in kinds else -1)
        enough(words, cls.LEAST)
        if "reason" in kinds and len(words) < len(kinds):
            words.append("")
        return cls(*(value(name, kind, word) for (name, kind), word in zip(kinds.items(), words, strict=False)))


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    return str(int(value)) if isinstance(value, bool) else one_line(str(value))


def enough(words: Sequence[str], least: int) -> None:
    """Raises ValueError if a line has fewer than `least` values."""
    if len(words) < least:
        raise ValueError(f"{len(words)} of at least {least} values")


def value(name: str, kind: Callable[[str], Any], word: str) -> Any:
    """A word as a value of a kind. Raises ValueError, with the field's name, for any other word."""
    try:
        if word in _CHOICES.get(name, (word,)):
            return kind(word)
    except ValueError:
        pass
    raise ValueError(f"{name} is {shown(word)}")


def logprobs_text(own: float, top: Sequence[tuple[int, float]]) -> str:
    """What LP and BLP carry: six decimals are more than the softmax of fp32 logits is worth."""
    return " ".join([_log_text(own), *(f"{token}:{_log_text(logprob)}" for token, logprob in top)])


def _log_text(value: float) -> str:
    return repr(round(float(value), 6))


def logprobs(words: Sequence[str]) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The token's own log-probability, and the (token id, log-probability) pairs up to a word that is none."""
    first = value("logprob", real_or_minus_infinity, words[0])
    top = []
    for word in words[1:]:
        token, colon, logprob = word.partition(":")
        if not colon:
            break
        top.append((value("id", whole, token), value("logprob", real_or_minus_infinity, logprob)))
    return first, tuple(top)
