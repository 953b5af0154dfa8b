"""Sparse attention and its indexer (docs/arithmetic.md, sections 10 and 11).

One rule for dense and sparse: a row attends to a list of keys in ascending position; blocks of 64 by rank in that list
go through an online softmax; every 1,024 ranks start a partial result of their own; partials merge in ascending order.
"""

import numpy as np

from strata.arithmetic.functions import exp, relu
from strata.arithmetic.order import lane_sum, ordered_sum, tree
from strata.arithmetic.types import F32, I64

BLOCK = 64
PARTIAL = 1024


def attend(q: F32, k: F32, v: F32, scale: np.float32) -> F32:
    """Attention of one row: q (H, D) over its keys k and values v (n, G, D), n >= 1, ascending position; (H, D).

    Query head h reads key head h // (H/G). score = dot(q, k) * scale, the dot a lane sum.
    """
    heads, _ = q.shape
    groups = k.shape[1]
    out: tuple[F32, F32, F32] | None = None
    for start in range(0, k.shape[0], PARTIAL):
        part = _partial(
            q.reshape(groups, heads // groups, -1), k[start : start + PARTIAL], v[start : start + PARTIAL], scale
        )
        out = part if out is None else _merge(out, part)
    assert out is not None
    _, total, weighted = out
    return (weighted / total[..., None]).reshape(heads, -1)


def _partial(q: F32, k: F32, v: F32, scale: np.float32) -> tuple[F32, F32, F32]:
    """Online softmax over at most 1,024 keys: maximum, sum and weighted values, (G, H/G) and (G, H/G, D)."""
    count = k.shape[0]
    scores = lane_sum(q[None] * k[:, :, None, :]) * scale
    top = np.full(scores.shape[1:], -np.inf, np.float32)
    total = np.zeros(scores.shape[1:], np.float32)
    weighted = np.zeros((*scores.shape[1:], v.shape[-1]), np.float32)
    for start in range(0, count, BLOCK):
        block = scores[start : start + BLOCK]
        new_top = np.maximum(top, block.max(axis=0))
        p = exp(block - new_top)
        shrink = exp(top - new_top)
        total = total * shrink + tree(p, axis=0)
        weighted = weighted * shrink[..., None] + tree(p[..., None] * v[start : start + BLOCK, :, None, :], axis=0)
        top = new_top
    return top, total, weighted


def _merge(a: tuple[F32, F32, F32], b: tuple[F32, F32, F32]) -> tuple[F32, F32, F32]:
    """Two partial results, the earlier first."""
    top = np.maximum(a[0], b[0])
    left, right = exp(a[0] - top), exp(b[0] - top)
    return top, a[1] * left + b[1] * right, a[2] * left[..., None] + b[2] * right[..., None]


def pool_keys(raw: F32) -> F32:
    """Mean of the raw index keys of complete blocks: raw (n, ratio, D) -> (n, D); summed oldest first, divided."""
    return ordered_sum(raw, 1) / np.float32(raw.shape[1])


def index_scores(q: F32, keys: F32) -> F32:
    """Scores of blocks: q (H, D) and block keys (n, D) -> (n,); relu of each head's dot, heads added in order.

    The reference divides by sqrt(D); the order is the same without, and the rounding of a division adds ties.
    """
    return ordered_sum(relu(lane_sum(q[None] * keys[:, None, :])), 1)


def select_blocks(scores: F32, count: int) -> I64:
    """The `count` best blocks by (score, lower index first), ascending; all when there are no more than `count`."""
    if scores.shape[0] <= count:
        return np.arange(scores.shape[0])
    order = np.argsort(-(scores + np.float32(0)), kind="stable")
    return np.sort(order[:count])


def selected_positions(blocks: I64, ratio: int, position: int) -> I64:
    """The positions a row at `position` attends to: the tokens of `blocks`, then its incomplete block; ascending."""
    tail_start = (position + 1) // ratio * ratio
    inside = (blocks[:, None] * ratio + np.arange(ratio)).reshape(-1)
    return np.concatenate([inside, np.arange(tail_start, position + 1)])
