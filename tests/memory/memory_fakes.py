"""States without a model: what they hold depends on their tokens and nothing else, so that any mix-up shows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from strata.memory import Origin, Sizes

ORIGIN = Origin("model-1", "bf16", "cpu")
SIZES = Sizes(chunk=1000, state=100)


def mixed(history: int, token: int) -> int:
    return (history * 6364136223846793005 + token * 2654435761 + 1442695040888963407) % 2**61


def history_of(tokens: Sequence[int]) -> int:
    history = 0
    for token in tokens:
        history = mixed(history, token)
    return history


class FakeState:
    """Tokens, a recurrent state (a hash of them) and a cache row a token."""

    def __init__(self, tokens: Sequence[int] = (), width: int = 2) -> None:
        self.tokens = list(tokens)
        self.history = history_of(tokens)
        self.rows = np.array([[token] * width for token in tokens], np.uint16).reshape(len(self.tokens), width)
        self.width = width

    @property
    def length(self) -> int:
        return len(self.tokens)

    def feed(self, tokens: Sequence[int]) -> None:
        """What a window does."""
        for token in tokens:
            self.history = mixed(self.history, token)
        self.tokens.extend(tokens)
        rows = np.array([[token] * self.width for token in tokens], np.uint16).reshape(len(tokens), self.width)
        self.rows = np.concatenate([self.rows, rows])

    def sound(self) -> bool:
        """Whether the state is that of its tokens."""
        return self.history == history_of(self.tokens) and self.rows[:, 0].tolist() == self.tokens

    def copy(self) -> "FakeState":
        twin = FakeState(width=self.width)
        twin.tokens, twin.history, twin.rows = list(self.tokens), self.history, self.rows
        return twin

    def settle(self) -> None:
        pass

    def sections(self, *, rows: bool = True) -> Iterator[tuple[str, np.ndarray]]:
        if rows:
            yield "tokens", np.array(self.tokens, np.int64)
            yield "layers.0.k", self.rows
        yield "layers.1.state", np.array([self.history], np.int64)

    def restore(self, arrays: Mapping[str, Any]) -> None:
        self.rows = arrays["layers.0.k"].copy()
        self.history = int(arrays["layers.1.state"][0])
        self.tokens = arrays["tokens"].tolist()

    def shorter(self, length: int, arrays: Mapping[str, Any]) -> "FakeState":
        twin = self.copy()
        twin.tokens, twin.rows = self.tokens[:length], self.rows[:length]
        twin.history = int(arrays["layers.1.state"][0])
        return twin

    def __eq__(self, other: object) -> bool:
        raise AssertionError("states hold arrays and must not be compared")

    __hash__ = object.__hash__
