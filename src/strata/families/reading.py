"""Reading typed facts out of metadata, with an error that names the key, what was found and what is needed."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from strata.errors import FamilyError

_MISSING: Any = object()


class Reader:
    """Typed access to one mapping (`GGUF metadata` or `config.json`) under a key prefix."""

    def __init__(self, values: Mapping[str, Any], prefix: str, where: str) -> None:
        self._values, self._prefix, self._where = values, prefix, where

    def _get(self, key: str, default: Any) -> Any:
        value = self._values.get(self._prefix + key)
        if value is not None:
            return value
        if default is _MISSING:
            raise FamilyError(f"{self._where}: {self._prefix}{key} is missing.")
        return default

    def count(self, key: str, default: Any = _MISSING, least: int = 1) -> int:
        """A whole number of at least `least`."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise FamilyError(
                f"{self._where}: {self._prefix}{key} is {value!r}; a whole number of {least} or more is needed."
            )
        return int(value)

    def number(self, key: str, default: Any = _MISSING) -> float:
        """A positive finite number."""
        value = self._get(key, default)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float | np.number)
            or not 0 < float(value) < float("inf")
        ):
            raise FamilyError(f"{self._where}: {self._prefix}{key} is {value!r}; a positive number is needed.")
        return float(value)

    def integers(self, key: str, default: Any = _MISSING, count: int | None = None) -> tuple[int, ...]:
        """An array of whole numbers, of length `count` where that is given."""
        value = self._get(key, default)
        try:
            numbers = tuple(int(v) for v in value)
        except (TypeError, ValueError):
            raise FamilyError(
                f"{self._where}: {self._prefix}{key} is {value!r}; an array of whole numbers is needed."
            ) from None
        if count is not None and len(numbers) != count:
            raise FamilyError(f"{self._where}: {self._prefix}{key} has {len(numbers)} entries; {count} are needed.")
        return numbers

    def refuse(self, key: str, allowed: tuple[Any, ...], why: str) -> None:
        """Raise unless the key is absent or one of the allowed values."""
        value = self._values.get(self._prefix + key)
        if value is not None and value not in allowed:
            raise FamilyError(f"{self._where}: {self._prefix}{key} is {value!r}, not {allowed[0]!r}: {why}.")
