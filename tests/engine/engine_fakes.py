"""A deterministic model for the engine's tests: its next token depends on every token before it and on nothing else.

`answer` is the independent expectation: the same rule written as a plain loop, without states, windows or an engine.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import strata
from strata import families
from strata.arithmetic.sampling import Sampling, sample
from strata.weights import open_checkpoint

SPEC = families.open_family(open_checkpoint(Path(strata.__file__).parent / "data" / "strata-demo.gguf")).spec
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


class FakeState:
    """Tokens and a hash of them; drafts stay undecided until `accept`. What it holds can be told from its tokens."""

    def __init__(self, tokens: Sequence[int] = ()) -> None:
        self.tokens: list[int] = []
        self.history = 0
        self.tentative: list[int] = []
        self.feed(tokens)

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def undecided(self) -> int:
        return len(self.tentative)

    def feed(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.history = mixed(self.history, token)
        self.tokens.extend(tokens)

    def accept(self, count: int) -> None:
        assert 0 <= count <= len(self.tentative)
        self.feed(self.tentative[:count])
        self.tentative = []

    def copy(self) -> "FakeState":
        assert not self.tentative
        twin = FakeState()
        twin.tokens, twin.history = list(self.tokens), self.history
        return twin

    def settle(self) -> None:
        assert not self.tentative

    def sections(self, *, rows: bool = True) -> Iterator[tuple[str, np.ndarray]]:
        if rows:
            yield "tokens", np.array(self.tokens, np.int64)
        yield "layers.0.state", np.array([self.history], np.int64)

    def restore(self, arrays: Mapping[str, Any]) -> None:
        self.tokens, self.history = arrays["tokens"].tolist(), int(arrays["layers.0.state"][0])

    def shorter(self, length: int, arrays: Mapping[str, Any]) -> "FakeState":
        twin = FakeState()
        twin.tokens, twin.history = self.tokens[:length], int(arrays["layers.0.state"][0])
        return twin

    def __eq__(self, other: object) -> bool:
        raise AssertionError("states hold arrays and must not be compared")

    __hash__ = object.__hash__


class FakeModel:
    """`windows` records (tokens held before, rows) of every segment; `before` is called with each window's rows.

    Its drafts are what the model will say, but for those at positions that `misses` divides.
    """

    vocab_size = VOCABULARY
    eos_ids = (EOS,)
    name = "fake"
    fingerprint = "fake-model"
    computed_by = "fake"
    kv = "bf16"
    threads = 1
    spec = SPEC

    def __init__(
        self, context: int = 256, before: Callable[[int], None] = lambda rows: None, *, misses: int = 3
    ) -> None:
        self.context_length = context
        self.turn_id = TURN
        self.can_draft = True
        self.windows: list[tuple[int, int]] = []
        self.lanes: list[int] = []  # segments of every window
        self.before = before
        self.misses = misses

    def new_state(self, drafts: bool = False) -> FakeState:
        return FakeState()

    def sample(self, logits: np.ndarray, sampling: Sampling, *, choice: int, position: int) -> int:
        return sample(logits, sampling, choice=choice, position=position)

    def draft(self, states: Sequence[FakeState], tokens: Sequence[int], depth: int) -> np.ndarray:
        drafts = np.zeros((len(states), depth), np.int64)
        for lane, (state, token) in enumerate(zip(states, tokens, strict=True)):
            assert not state.tentative
            history = mixed(state.history, token)
            for at in range(depth):
                guess = int(np.argmax(row(history)))
                drafts[lane, at] = guess if (state.length + at) % self.misses else (guess + 1) % TURN
                history = mixed(history, int(drafts[lane, at]))
        return drafts

    def draft_chains(
        self, states: Sequence[FakeState], tokens: Sequence[int], depth: int, least: Sequence[float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Every second chain of a position is said to be short: `least` has to be heeded, whatever the drafts are."""
        drafts = self.draft(states, tokens, depth)
        chances = np.zeros(drafts.shape, np.float32)
        for lane, state in enumerate(states):
            chance = 0.9 if state.length % 2 else 0.6
            for at in range(depth):
                chances[lane, at] = chance ** (at + 1)
                if chances[lane, at] < least[lane]:
                    drafts[lane, at:], chances[lane, at:] = -1, 0
                    break
        return drafts, chances

    def forward(self, segments: Sequence[Any]) -> np.ndarray:
        assert segments
        assert len({id(s.state) for s in segments}) == len(segments)
        self.before(sum(len(s.tokens) for s in segments))
        self.lanes.append(len(segments))
        rows = []
        for segment in segments:
            state, tokens = segment.state, list(segment.tokens)
            assert len(tokens) > 0
            assert not state.tentative
            assert 0 <= segment.logits_from <= len(tokens)
            assert state.length + len(tokens) <= self.context_length
            self.windows.append((state.length, len(tokens)))
            if RAISES in tokens:
                raise ValueError("the fake model fails\nas asked")
            decided = len(tokens) - segment.tentative
            spoilt, history = NANS in state.tokens, state.history
            for at, token in enumerate(tokens):
                history, spoilt = mixed(history, token), spoilt or token == NANS
                if at >= segment.logits_from:
                    rows.append(np.full(VOCABULARY, np.nan, np.float32) if spoilt else row(history))
            state.feed(tokens[:decided])
            state.tentative = tokens[decided:]
        return np.array(rows, dtype=np.float32).reshape(len(rows), VOCABULARY)
