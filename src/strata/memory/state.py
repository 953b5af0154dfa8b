"""What the memory room asks of a conversation's state; the states of `strata.cpu` are such."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from strata.cpu.pieces import Section

Array = npt.NDArray[np.generic]


class State(Protocol):
    """A conversation: its tokens and the state after them."""

    @property
    def tokens(self) -> list[int]:
        """The tokens held."""

    @property
    def length(self) -> int:
        """How many they are."""

    def copy(self) -> Self:
        """A checkpoint: either may go on without the other. Keys and values are shared, not copied."""

    def settle(self) -> None:
        """Compute what was left for later, so that reading the state changes nothing any more."""

    def sections(self, *, rows: bool = True) -> Iterator[tuple[str, Section]]:
        """Every array by name. An array is valid until the next is asked for.

        `rows=False` leaves out the tokens and the rows of caches, which a longer state of the conversation has too.
        """

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Become the state of these sections. An array is valid until another of the same last name part is read."""

    def shorter(self, length: int, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The state after the first `length` tokens: cache rows shared with this one, the rest from its sections."""
