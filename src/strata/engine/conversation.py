"""What is kept of the conversation served last, so that its next request reads only what is new.

A recurrent state cannot be rolled back, so a conversation resumes only where a state was kept: at its end (the live
state), and at checkpoints, copies made at the opening of a turn. History that comes back without a reply's thinking, or
with an edited last message, still matches up to such a checkpoint.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strata.model import LaneState


class Conversation:
    """One live state and at most `limit` checkpoints (and one pinned), all on one path of tokens; 0: only the live."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._live: LaneState | None = None
        self._checkpoints: list[LaneState] = []  # least recently used first
        self._pinned: LaneState | None = None

    @property
    def lengths(self) -> tuple[list[int], int]:
        """Tokens held by the checkpoints, ascending, and by the live state (0: none)."""
        return sorted(state.length for state in self._kept()), 0 if self._live is None else self._live.length

    def take(self, prompt: Sequence[int]) -> "LaneState | None":
        """The longest kept state that `prompt` (a list) continues, to be advanced by the caller; None if there is none.

        The prompt becomes the conversation: what does not lie on its path, and the live state, are forgotten.
        """
        on_path = [state for state in self._kept() if _continues(prompt, state)]
        best = max(on_path, key=_length, default=None)
        live, self._live = self._live, None
        self._checkpoints = [state for state in on_path if state is not self._pinned and state is not best]
        if best is not None and best is not self._pinned:
            self._checkpoints.append(best)
        if not any(state is self._pinned for state in on_path):
            self._pinned = None
        if live is not None and _continues(prompt, live) and (best is None or live.length >= best.length):
            return live
        return None if best is None else best.copy()

    def peek(self, prompt: Sequence[int]) -> "LaneState | None":
        """A copy of what `take` would give, for a one-shot request: the kept conversation stays as it is."""
        states = [*self._kept(), *([] if self._live is None else [self._live])]
        best = max((state for state in states if _continues(prompt, state)), key=_length, default=None)
        return None if best is None else best.copy()

    def checkpoint(self, state: "LaneState", *, pinned: bool = False) -> None:
        """Keep a copy of `state`. Above the limit the least recently used gives way; a pin replaces the earlier pin."""
        if self.limit == 0:
            return
        if pinned:
            self._pinned = state.copy()
        elif state.length not in self.lengths[0]:
            self._checkpoints = [*self._checkpoints, state.copy()][-self.limit :]

    def keep(self, state: "LaneState") -> None:
        """The request has ended: `state` is the live one."""
        self._live = state if state.length else None

    def forget(self) -> None:
        self._live, self._pinned = None, None
        self._checkpoints.clear()

    def _kept(self) -> "list[LaneState]":
        return [*self._checkpoints, *([] if self._pinned is None else [self._pinned])]


def _continues(prompt: Sequence[int], state: "LaneState") -> bool:
    """Whether the prompt starts with all tokens of the state and is longer: at least one row has to be computed."""
    return state.length < len(prompt) and prompt[: state.length] == state.tokens


def _length(state: "LaneState") -> int:
    return state.length
