"""What a window computes of one conversation, and what a conversation offers whoever computes it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy.typing as npt

from strata.cpu.pieces import Section


class LaneState(Protocol):
    """One conversation: the tokens it holds and the state after them. `Model.forward` advances it."""

    @property
    def tokens(self) -> list[int]:
        """The tokens held."""

    @property
    def length(self) -> int:
        """Tokens held, undecided ones not counted."""

    @property
    def undecided(self) -> int:
        """Rows of the last window's drafts that `accept` has not decided about."""

    def accept(self, count: int) -> None:
        """Keep the first `count` undecided rows and forget the others."""

    def copy(self) -> Self:
        """A checkpoint: either may go on without the other."""

    def settle(self) -> None:
        """Compute what was left for later, so that reading the state changes nothing any more."""

    def sections(self, *, rows: bool = True) -> Iterator[tuple[str, Section]]:
        """Every array by name, the same on every path; an array is valid until the next is asked for.

        `rows=False` leaves out the tokens and the rows of caches, which a longer state of the conversation has too. A
        lane without drafts has no MTP sections.
        """

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Become the state of these sections; UsageError, nothing changed, where MTP rows are needed and not there."""

    def shorter(self, length: int, arrays: Mapping[str, npt.NDArray[Any]]) -> Self:
        """The state after the first `length` tokens: cache rows of this one, the rest of its `sections(rows=False)`."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive new tokens of one conversation; logits are wanted for `tokens[logits_from:]`.

    The last `tentative` tokens are drafts: their rows are computed like any others, but the conversation holds them
    only after `state.accept` said how many are kept, which has to come before anything else is done with it.
    """

    state: LaneState
    tokens: Sequence[int]
    logits_from: int
    tentative: int = 0
