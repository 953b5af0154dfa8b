"""Router, experts and the shared expert (docs/arithmetic.md, section 12)."""

from collections.abc import Callable

import numpy as np

from strata.arithmetic.functions import exp, sigmoid, silu
from strata.arithmetic.order import ordered_sum
from strata.arithmetic.products import Matrix, Rows
from strata.arithmetic.types import F32, I64

Product = Callable[[Rows, Matrix], F32]


def top_k(logits: F32, count: int) -> I64:
    """Indices of the `count` largest of each row (R, E), largest first; equal values: the lower index first."""
    return np.argsort(-(logits + np.float32(0)), axis=-1, kind="stable")[:, :count]


def route(logits: F32, count: int) -> tuple[I64, F32]:
    """Router: the `count` experts of each row by logit, and weights that sum to 1: ids and weights (R, count).

    Weight = exp(logit - largest) / (their sum in rank order): the softmax renormalized over the chosen ones.
    """
    ids = top_k(logits, count)
    chosen = np.take_along_axis(logits, ids, axis=-1)
    weights = exp(chosen - chosen[:, :1])
    return ids, weights / ordered_sum(weights, -1)[:, None]


def feed_forward(rows: Rows, gate: Matrix, up: Matrix, down: Matrix, product: Product) -> F32:
    """One expert: down(silu(gate x) * (up x)), rows (R, K) -> (R, K); the hidden row is quantized again for down."""
    return product(Rows(silu(product(rows, gate)) * product(rows, up)), down)


def mix_experts(rows: Rows, ids: I64, weights: F32, expert: Callable[[int, Rows], F32], width: int) -> F32:
    """Weighted sum of each row's experts in rank order from +0: (R, width).

    Rows that share an expert are computed together; `expert(e, rows)` gives the rows of expert e, from any device.
    """
    results = np.empty((*ids.shape, width), np.float32)
    for e in np.unique(ids):
        row, rank = np.nonzero(ids == e)
        results[row, rank] = expert(int(e), rows.pick(row))
    return ordered_sum(weights[:, :, None] * results, 1)


def add_shared(experts: F32, shared: F32, gate_logit: F32) -> F32:
    """The block's output: experts + sigmoid(gate) * shared; experts, shared (R, K), gate_logit (R, 1)."""
    return experts + sigmoid(gate_logit) * shared
