"""The two orders in which floats are added: the pairwise tree and the lane sum (docs/arithmetic.md, section 2).

Nothing in this room calls a library's sum, dot or matmul on floats: their order is not ours. All values are fp32.
"""

import numpy as np

from strata.arithmetic.types import F32

LANES = 32
SEGMENT = 128


def tree(x: F32, axis: int = -1) -> F32:
    """Pairwise sum over `axis`, neighbours first, padded at the end with +0 to a power of two; fp32, axis removed."""
    x = np.moveaxis(x, axis, 0)
    size = x.shape[0]
    if size == 0:
        return np.zeros(x.shape[1:], np.float32)
    full = 1 << (size - 1).bit_length()
    if full != size:
        x = np.concatenate([x, np.zeros((full - size, *x.shape[1:]), np.float32)])
    while x.shape[0] > 1:
        x = x[0::2] + x[1::2]
    return x[0]


def lane_sum(x: F32) -> F32:
    """Sum over the last axis in the order of float products; fp32, last axis removed.

    The axis is cut into segments of 128. In a segment lane l starts at +0 and adds elements l, l+32, l+64, l+96 in
    that order; the 32 lanes are added by a tree, then the segments by a tree. A short last segment is padded with +0,
    which changes no bit, because an accumulator that started at +0 is never -0.
    """
    count = x.shape[-1]
    segments = -(-count // SEGMENT)
    if segments * SEGMENT != count:
        padding = np.zeros((*x.shape[:-1], segments * SEGMENT - count), np.float32)
        x = np.concatenate([x, padding], axis=-1)
    x = x.reshape(*x.shape[:-1], segments, SEGMENT // LANES, LANES)
    lanes = np.float32(0) + x[..., 0, :]
    for step in range(1, SEGMENT // LANES):
        lanes = lanes + x[..., step, :]
    return tree(tree(lanes))


def ordered_sum(x: F32, axis: int) -> F32:
    """Sum over `axis` one after the other from +0, first element first; for short axes (streams, ranks, taps)."""
    x = np.moveaxis(x, axis, 0)
    total = np.zeros(x.shape[1:], np.float32)
    for part in x:
        total = total + part
    return total
