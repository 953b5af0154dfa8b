"""The n-gram table (per-layer embedding): hashing of token n-grams and the layer's gate.

docs/arithmetic.md, section 14.
"""

import numpy as np

from strata.arithmetic.functions import sigmoid
from strata.arithmetic.norms import rms_norm
from strata.arithmetic.order import lane_sum
from strata.arithmetic.types import F32, I64

GATE_FLOOR = np.float32(1e-6)


def ngram_rows(
    tail: I64, tokens: I64, multipliers: I64, offsets: I64, sizes: I64, heads: int, eos: int
) -> tuple[I64, I64]:
    """Table rows of each token: (T, orders * heads), and the new tail.

    `tail`: the `order - 1` tokens before (eos where there are none). For n-gram order n = 2, 3, ...: the token and its
    n-1 predecessors, each times its multiplier (wrapping int64), are combined by xor; a head's row is that modulo the
    head's size plus the head's offset. A predecessor at or before the nearest earlier eos counts as eos.
    """
    reach = len(tail)
    history = np.concatenate([tail, tokens])
    count = len(tokens)
    current = history[reach:]
    mixed = current * multipliers[0]
    cut = np.zeros(count, bool)
    rows = []
    for shift in range(1, reach + 1):
        before = history[reach - shift : reach - shift + count]
        cut = cut | (before == eos)
        mixed = mixed ^ (np.where(cut, eos, before) * multipliers[shift])
        first = (shift - 1) * heads
        rows.append(mixed[:, None] % sizes[first : first + heads] + offsets[first : first + heads])
    return np.concatenate(rows, axis=1), history[len(history) - reach :].copy()


def ngram_gate(key: F32, streams: F32, value: F32, key_gamma: F32, query_gamma: F32, eps: float) -> F32:
    """The gated values (R, S, D): each stream's gate times the shared value.

    key (R, S*D) and streams (R, S, D) are RMS-normed stream by stream; g = lane sum of their product / sqrt(D);
    gate = sigmoid(sign(g) * sqrt(max(|g|, 1e-6))), where sign(0) = 0; value (R, D).
    """
    count, s, d = streams.shape
    k = rms_norm(key, key_gamma, eps, group=d).reshape(count, s, d)
    q = rms_norm(streams.reshape(count, s * d), query_gamma, eps, group=d).reshape(count, s, d)
    g = lane_sum(k * q) / np.sqrt(np.float32(d))
    root = np.sqrt(np.maximum(np.abs(g), GATE_FLOOR))
    signed = np.where(g > 0, root, np.where(g < 0, -root, np.float32(0)))
    return sigmoid(signed)[..., None] * value[:, None, :]
