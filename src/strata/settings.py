"""Every STRATA_* environment variable, declared once. This is the only reader of `os.environ`.

`docs/settings.md` lists the same table; a test compares the two.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strata.errors import UsageError


@dataclass(frozen=True, slots=True)
class Variable:
    """One environment variable: its name, type (int, float, str), default and what it does."""

    name: str
    kind: type
    default: int | float | str
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] | None = None


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "STRATA_OPS",
        str,
        "native",
        "which implementation computes: native (C++) or reference (numpy)",
        choices=("native", "reference"),
    ),
    Variable(
        "STRATA_ISA",
        str,
        "auto",
        "instruction set of the C++ ops: portable, avx2, avx512vnni, amx, or the best of the machine (auto)",
    ),
    Variable(
        "STRATA_REPACK",
        str,
        "auto",
        "weights rearranged in memory for the C++ ops: on, off (used where they lie in the file), "
        "or on where they fit the available memory (auto)",
        choices=("auto", "on", "off"),
    ),
    Variable(
        "STRATA_WATCHDOG_S",
        float,
        60.0,
        "seconds without progress after which the engine reports a stall and aborts (0: never)",
        minimum=0,
    ),
    Variable(
        "STRATA_ENGINE_READY_S",
        float,
        900.0,
        "seconds the server waits for the engine to become ready (0: no limit)",
        minimum=0,
    ),
    Variable(
        "STRATA_ENGINE_SILENCE_S",
        float,
        300.0,
        "seconds without a line from the engine during a request after which the server restarts it (0: never)",
        minimum=0,
    ),
    Variable(
        "STRATA_BATCH_DECODE_SHARE",
        float,
        0.5,
        "seconds of decoding that go with a second of reading prompts while both wait (0: prompts first)",
        minimum=0,
        maximum=1,
    ),
    Variable("STRATA_API_KEY", str, "", "API key (or several, comma separated) that clients must send"),
    Variable("STRATA_API_KEY_FILE", str, "", "file with API keys that clients must send, one a line"),
)
_SECRETS = ("STRATA_API_KEY", "STRATA_API_KEY_FILE")
_BY_NAME: Mapping[str, Variable] = {v.name: v for v in VARIABLES}


def read(name: str, environ: Mapping[str, str] | None = None) -> Any:
    """The value of one variable, of its declared type. Raises UsageError naming variable, value and what is allowed."""
    variable = _BY_NAME[name]
    text = (os.environ if environ is None else environ).get(name)
    if text is None or text == "":
        return variable.default
    try:
        value = variable.kind(text)
    except ValueError:
        kind = "whole number" if variable.kind is int else "number"
        raise UsageError(f"{name}={text!r} is not a {kind} ({variable.help}).") from None
    if variable.choices is not None and value not in variable.choices:
        raise UsageError(f"{name}={text!r} must be one of {', '.join(variable.choices)}.")
    if variable.minimum is not None and not value >= variable.minimum:
        raise UsageError(f"{name}={text} must be at least {variable.minimum:g}.")
    if variable.maximum is not None and not value <= variable.maximum:
        raise UsageError(f"{name}={text} must be at most {variable.maximum:g}.")
    return value


def without_secrets(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a process that has no business with the keys of clients."""
    source = os.environ if environ is None else environ
    return {name: value for name, value in source.items() if name not in _SECRETS}


def state_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where a user's own state is kept, as the XDG base directory specification says; it may not be there yet."""
    base = (os.environ if environ is None else environ).get("XDG_STATE_HOME", "")
    # A relative path is to be ignored, says the specification.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".local" / "state") / "strata"
