"""What a word of a line may be: shared by commands and reports. Each raises ValueError for any other text."""

import math
import re

LARGEST = 2**31 - 1
_SHOWN = 40
_REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def one_line(text: str) -> str:
    """`text` without line breaks: what the reason at the end of a line may carry."""
    return " ".join(text.split())


def shown(text: str) -> str:
    """`text` as a sentence quotes it: in quotes, and cut."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def whole(text: str, high: int = 2**64 - 1) -> int:
    """A number from 0 to `high`, in decimal digits."""
    if not re.fullmatch(r"[0-9]{1,20}", text) or int(text) > high:
        raise ValueError(text)
    return int(text)


def real(text: str) -> float:
    """A finite number in decimal, with an exponent or without one."""
    value = float(text) if _REAL.fullmatch(text) else math.nan
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def real_or_minus_infinity(text: str) -> float:
    """A finite number, or `-inf`."""
    return -math.inf if text == "-inf" else real(text)


def switch(text: str) -> bool:
    """1 or 0."""
    if text not in ("0", "1"):
        raise ValueError(text)
    return text == "1"
