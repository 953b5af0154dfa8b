"""What a window computes of one conversation, and what a conversation offers whoever computes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self


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
