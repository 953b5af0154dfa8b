"""What happens to logits before a token is drawn from them: bias, then penalties for tokens that stand in the history.

docs/arithmetic.md, section 15. Every step is one fp32 operation a token, so any device gives the same bits. A row of a
window is penalized by the tokens before it in its conversation, drafts included, so drafts change no token here either.
Repetition penalty: Keskar et al., CTRL (2019), section 4.1. Frequency and presence penalties: the OpenAI API reference.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from strata.arithmetic.types import F32


@dataclass(frozen=True, slots=True)
class Penalties:
    """`last_n` tokens of the history count (0: none). `repeat` 1, `frequency` 0 and `presence` 0 change nothing.

    `bias`: added to the logits of single tokens, whatever the history; minus infinity bans a token.
    """

    last_n: int = 0
    repeat: float = 1.0
    frequency: float = 0.0
    presence: float = 0.0
    bias: Mapping[int, float] = field(default_factory=dict)

    @property
    def looks_back(self) -> bool:
        """Whether the history changes anything."""
        return self.last_n > 0 and (self.repeat, self.frequency, self.presence) != (1.0, 0.0, 0.0)

    @property
    def neutral(self) -> bool:
        """Whether `penalized` would give back every row as it is."""
        return not self.bias and not self.looks_back


class Recent:
    """How often each token stands among the last `last_n` of a history; appending takes constant time."""

    def __init__(self, last_n: int, tokens: Sequence[int] = ()) -> None:
        self.last_n = last_n
        self.counts: dict[int, int] = {}
        self._window: deque[int] = deque()
        self.extend(tokens[-last_n:] if last_n > 0 else ())

    def append(self, token: int) -> None:
        """One more token of the history; the oldest gives way."""
        if self.last_n <= 0:
            return
        self._window.append(token)
        self.counts[token] = self.counts.get(token, 0) + 1
        if len(self._window) > self.last_n:
            oldest = self._window.popleft()
            left = self.counts[oldest] - 1
            if left:
                self.counts[oldest] = left
            else:
                del self.counts[oldest]

    def extend(self, tokens: Iterable[int]) -> None:
        """More tokens, the oldest first."""
        for token in tokens:
            self.append(token)

    def copy(self) -> "Recent":
        """The same history, to go on with drafts."""
        twin = Recent(self.last_n)
        twin.counts, twin._window = dict(self.counts), deque(self._window)
        return twin


def penalized(logits: F32, penalties: Penalties, counts: Mapping[int, int]) -> F32:
    """One row (V,) after bias and penalties, a copy; `counts` as in `Recent`. Unknown tokens are skipped.

    For a token with a bias: l + bias. Then, for one that stands c > 0 times in the history: l * repeat if l <= 0, else
    l / repeat; then l - c * frequency; then l - presence. All in fp32, rounded after each operation, in that order.
    """
    row = logits.copy()
    size = len(row)
    if penalties.bias:
        tokens = np.array([token for token in penalties.bias if 0 <= token < size], np.int64)
        row[tokens] += np.array([penalties.bias[int(token)] for token in tokens], np.float32)
    if counts and penalties.looks_back:
        tokens = np.array([token for token in counts if 0 <= token < size], np.int64)
        often = np.array([counts[int(token)] for token in tokens], np.float32)
        repeat = np.float32(penalties.repeat)
        seen = row[tokens]
        if penalties.repeat != 1.0:
            seen = np.where(seen <= 0, seen * repeat, seen / repeat)
        seen = seen - often * np.float32(penalties.frequency)
        row[tokens] = seen - np.float32(penalties.presence)
    return row


def penalized_rows(logits: F32, penalties: Penalties, recent: Recent, drafts: Sequence[int]) -> F32:
    """Rows (1 + drafts, V) of one lane's window: row i follows `recent` and the first i drafts.

    `recent` has to hold the window's last known token already, and stays as it is.
    """
    if penalties.neutral:
        return logits
    history = recent.copy() if drafts else recent
    rows = [penalized(logits[0], penalties, history.counts)]
    for row, draft in zip(logits[1:], drafts, strict=True):
        history.append(draft)
        rows.append(penalized(row, penalties, history.counts))
    return np.stack(rows)
