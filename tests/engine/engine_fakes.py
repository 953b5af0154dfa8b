"""A deterministic model for the engine's tests: its next token depends on every token before it and on nothing else.

`answer` is the independent expectation: the same rule written as a plain loop, without states, windows or an engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

VOCABULARY = 64
EOS = 63
TURN = 50
RAISES, NANS, HANGS = 60, 61, 62


def mixed(history: int, token: int) -> int:
    return (history * 6364136223846793005 + token * 2654435761 + 1442695040888963407) % 2**61


def row(history: int) -> np.ndarray:
    """Logits (64,) of a history; the ids that make the model fail are never likely."""
    values = [(history >> (i % 29)) * (2 * i + 1) % 1009 / 100 for i in range(VOCABULARY)]
    values[RAISES] = values[NANS] = values[HANGS] = -100.0
    return np.array(values, dtype=np.float32)


def answer(
    prompt: Sequence[int], count: int, eos: Sequence[int] = (EOS,), draw: Callable[..., int] | None = None
) -> list[int]:
    """The tokens that follow a prompt: greedy, or drawn by `draw(logits, position)`."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < count:
        history = 0
        for token in tokens:
            history = mixed(history, token)
        tokens.append(int(np.argmax(row(history))) if draw is None else draw(row(history), len(tokens)))
        if tokens[-1] in eos:
            break
    return tokens[len(prompt) :]


@dataclass
class FakeState:
    tokens: list[int] = field(default_factory=list)
    history: int = 0

    @property
    def length(self) -> int:
        return len(self.tokens)

    def copy(self) -> "FakeState":
        return FakeState(list(self.tokens), self.history)

    def __eq__(self, other: object) -> bool:
        raise AssertionError("states hold arrays and must not be compared")

    __hash__ = object.__hash__


class FakeModel:
    """`windows` records (tokens held before, rows) of every segment; `before` is called with each window's rows."""

    vocab_size = VOCABULARY
    eos_ids = (EOS,)
    name = "fake"

    def __init__(self, context: int = 256, before: Callable[[int], None] = lambda rows: None) -> None:
        self.context_length = context
        self.turn_id = TURN
        self.windows: list[tuple[int, int]] = []
        self.before = before

    def new_state(self) -> FakeState:
        return FakeState()

    def forward(self, segments: Sequence[Any]) -> np.ndarray:
        assert segments
        assert len({id(s.state) for s in segments}) == len(segments)
        self.before(sum(len(s.tokens) for s in segments))
        rows = []
        for segment in segments:
            state, tokens = segment.state, segment.tokens
            assert len(tokens) > 0
            assert 0 <= segment.logits_from <= len(tokens)
            assert state.length + len(tokens) <= self.context_length
            self.windows.append((state.length, len(tokens)))
            for at, token in enumerate(tokens):
                if token == RAISES:
                    raise ValueError("the fake model fails\nas asked")
                state.tokens.append(token)
                state.history = mixed(state.history, token)
                if at >= segment.logits_from:
                    rows.append(
                        row(state.history) if NANS not in state.tokens else np.full(VOCABULARY, np.nan, np.float32)
                    )
        return np.array(rows, dtype=np.float32).reshape(len(rows), VOCABULARY)
