"""What carries a state from token to token: the short convolutions and the gated delta rule.

docs/arithmetic.md, sections 8 and 9. Each processes the rows of one conversation in order; T rows at once give the
bits of T calls with one row.
"""

import numpy as np

from strata.arithmetic.order import ordered_sum, tree
from strata.arithmetic.types import F32


def causal_conv(tail: F32, x: F32, weight: F32, dilation: int = 1) -> tuple[F32, F32]:
    """Depthwise causal convolution of rows x (T, C) after the rows `tail` ((taps-1)*dilation, C).

    `weight` (C, taps), oldest tap first; y[t] adds tap * row from +0, oldest first. Returns y (T, C) and the new tail.
    """
    taps = weight.shape[1]
    history = np.concatenate([tail, x])
    count = x.shape[0]
    terms = np.stack([history[tap * dilation : tap * dilation + count] * weight[:, tap] for tap in range(taps)])
    return ordered_sum(terms, 0), history[count:].copy()


def gated_delta_rule(state: F32, q: F32, k: F32, v: F32, decay: F32, beta: F32) -> tuple[F32, F32]:
    """The gated delta rule, one token after the other. Source: Yang et al., Gated Delta Networks (2024).

    state (H, Dk, Dv); q, k (T, H, Dk) normalized, q scaled; v (T, H, Dv); decay, beta (T, H), decay = exp(g).
    Per token: S = S*decay; m = S^T k; d = (v - m)*beta; S = S + k d^T; o = S^T q, both products tree sums over Dk.
    Returns o (T, H, Dv) and the new state; `state` itself is left as it is.
    """
    out = np.empty_like(v)
    for t in range(v.shape[0]):
        state = state * decay[t, :, None, None]
        memory = tree(state * k[t, :, :, None], axis=1)
        delta = (v[t] - memory) * beta[t, :, None]
        state = state + k[t, :, :, None] * delta[:, None, :]
        out[t] = tree(state * q[t, :, :, None], axis=1)
    return out, state
