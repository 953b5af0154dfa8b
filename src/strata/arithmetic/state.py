"""What a conversation is between two windows: recurrent states, convolution tails, and the attention layers' caches."""

from dataclasses import dataclass, field

import numpy as np

from strata.arithmetic.types import F32, I64
from strata.families import Spec

FIRST_CAPACITY = 256


class Growing:
    """Rows appended to one array that doubles when it is full."""

    def __init__(self, *shape: int) -> None:
        self._data = np.empty((0, *shape), np.float32)
        self.length = 0

    @property
    def rows(self) -> F32:
        """The rows so far (a view)."""
        return self._data[: self.length]

    def append(self, rows: F32) -> None:
        """Add rows at the end."""
        need = self.length + len(rows)
        if need > len(self._data):
            grown = np.empty((max(need, 2 * len(self._data), FIRST_CAPACITY), *self._data.shape[1:]), np.float32)
            grown[: self.length] = self.rows
            self._data = grown
        self._data[self.length : need] = rows
        self.length = need

    def copy(self) -> "Growing":
        """An independent copy of the rows so far."""
        twin = Growing(*self._data.shape[1:])
        twin.append(self.rows)
        return twin


@dataclass(slots=True)
class AttentionState:
    """An attention layer's cache: keys and values (rounded to the cache's type), block index keys, open raw keys."""

    k: Growing  # (n, G, D)
    v: Growing
    index: Growing  # (complete blocks, Di)
    open: F32  # (< ratio, Di): raw index keys of the incomplete block, never rounded

    @classmethod
    def empty(cls, spec: Spec) -> "AttentionState":
        """The cache of an empty conversation."""
        a = spec.attention
        return cls(
            Growing(a.kv_heads, a.head_dim),
            Growing(a.kv_heads, a.head_dim),
            Growing(a.index_dim),
            np.empty((0, a.index_dim), np.float32),
        )

    def copy(self) -> "AttentionState":
        """A deep copy."""
        return AttentionState(self.k.copy(), self.v.copy(), self.index.copy(), self.open)


@dataclass(slots=True)
class DeltaState:
    """A gated delta net's state (H, Dk, Dv) and the tail of its convolution (taps-1, C). Arrays are replaced whole."""

    state: F32
    tail: F32


@dataclass(slots=True)
class NgramState:
    """The last tokens (order-1) and the tail of the n-gram layer's convolution. Arrays are replaced whole."""

    tokens: I64
    tail: F32


@dataclass(slots=True)
class LaneState:
    """One conversation: the tokens it holds and the state after them. `forward` advances it; `copy` is a checkpoint."""

    spec: Spec
    tokens: list[int] = field(default_factory=list)
    layers: list[DeltaState | AttentionState] = field(default_factory=list)
    ngram: NgramState | None = None
    mtp: AttentionState | None = None

    @property
    def length(self) -> int:
        """Tokens held."""
        return len(self.tokens)

    @classmethod
    def empty(cls, spec: Spec) -> "LaneState":
        """A conversation without tokens."""
        d, n, wide = spec.delta, spec.ngram, spec.streams * spec.hidden
        layers: list[DeltaState | AttentionState] = [
            DeltaState(
                np.zeros((d.value_heads, d.key_dim, d.value_dim), np.float32),
                np.zeros((d.conv_taps - 1, d.conv_width), np.float32),
            )
            if kind == "delta"
            else AttentionState.empty(spec)
            for kind in spec.kinds
        ]
        ngram = (
            None
            if n is None
            else NgramState(
                np.full(n.order - 1, n.eos, np.int64), np.zeros(((n.conv_taps - 1) * n.order, wide), np.float32)
            )
        )
        return cls(spec, [], layers, ngram, AttentionState.empty(spec) if spec.mtp_layers else None)

    def copy(self) -> "LaneState":
        """A deep copy: either may go on without the other."""
        layers = [DeltaState(s.state, s.tail) if isinstance(s, DeltaState) else s.copy() for s in self.layers]
        ngram = None if self.ngram is None else NgramState(self.ngram.tokens, self.ngram.tail)
        return LaneState(self.spec, list(self.tokens), layers, ngram, None if self.mtp is None else self.mtp.copy())
