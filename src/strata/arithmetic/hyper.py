"""Hyper-connections: several residual streams, mixed into a block's input and fed by its output.

docs/arithmetic.md, section 13. Streams x: (R, S, D), S streams of width D.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from strata.arithmetic.functions import sigmoid, silu
from strata.arithmetic.norms import rms_norm
from strata.arithmetic.order import ordered_sum
from strata.arithmetic.products import Matrix, Rows
from strata.arithmetic.types import F32


@dataclass(frozen=True, slots=True)
class HyperConnection:
    """Weights of one site: gamma (S*D), down (rank, S*D), up (S*D, rank), inject (S, S*D) or None at a final mixer."""

    gamma: F32
    down: Matrix
    up: Matrix
    inject: Matrix | None


def mix_streams(
    streams: F32, w: HyperConnection, eps: float, product: Callable[[Rows, Matrix], F32]
) -> tuple[F32, F32 | None]:
    """The block's input (R, D) and the injection weights (R, S) (None at a final mixer).

    n = rms_norm of each stream; m = sigmoid(up silu(down n / S)); input = sum over streams of m*n, in order, / S;
    injection = 2 * sigmoid(inject n / S).
    """
    count, s, d = streams.shape
    share = np.float32(s)
    flat = rms_norm(streams.reshape(count, s * d), w.gamma, eps, group=d)
    rows = Rows(flat)
    low = silu(product(rows, w.down) / share)
    mask = sigmoid(product(Rows(low), w.up))
    mixed = ordered_sum((mask * flat).reshape(count, s, d), 1) / share
    if w.inject is None:
        return mixed, None
    return mixed, np.float32(2) * sigmoid(product(rows, w.inject) / share)


def inject(streams: F32, output: F32, weights: F32) -> F32:
    """Streams plus the block's output (R, D) times each stream's injection weight (R, S)."""
    return streams + output[:, None, :] * weights[:, :, None]
