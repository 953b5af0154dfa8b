"""Products of rows with weight matrices: quantized (int8 activations, integer dots) and float.

`y[n] = sum_k x[k] W[n, k]` in the order of docs/arithmetic.md, sections 3 and 4.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from strata import formats
from strata.arithmetic.functions import rint
from strata.arithmetic.order import lane_sum, tree
from strata.arithmetic.types import F32, I8, I64, U8

BLOCK = 32
BLOCKS_A_SEGMENT = 4
TINY = np.float32(2.0**-60)
FINITE_BITS = np.uint32(0x7F800000)
WORK = 1 << 22  # elements of one temporary, to bound memory


@dataclass(frozen=True, slots=True)
class QuantizedRows:
    """Rows in blocks of 32: `q` int8 (R, B, 32), |q| <= 127, and `scale` fp32 (R, B); the tail is padded with 0."""

    q: I8
    scale: F32


def quantize_rows(x: F32) -> QuantizedRows:
    """Quantize rows x (R, K) for integer products.

    amax = max|x| of a block, scale = amax / 127, q = rint(x * (127 / amax)). A block with amax below 2**-60 becomes
    zeros with scale 0; one with an infinity or NaN becomes zeros with scale NaN.
    """
    rows, k = x.shape
    blocks = -(-k // BLOCK)
    if blocks * BLOCK != k:
        x = np.concatenate([x, np.zeros((rows, blocks * BLOCK - k), np.float32)], axis=1)
    x = np.ascontiguousarray(x).reshape(rows, blocks, BLOCK)
    top = (x.view(np.uint32) & np.uint32(0x7FFFFFFF)).max(axis=-1) if x.size else np.zeros((rows, blocks), np.uint32)
    amax = top.view(np.float32)
    usable = (top < FINITE_BITS) & (amax >= TINY)
    safe: F32 = np.where(usable, amax, np.float32(1))
    inverse = np.float32(127) / safe
    kept = np.where(usable[..., None], x, np.float32(0)).astype(np.float32)
    q = rint(kept * inverse[..., None])
    scale = np.where(usable, safe / np.float32(127), np.where(top >= FINITE_BITS, np.float32(np.nan), np.float32(0)))
    return QuantizedRows(q.astype(np.int8), scale.astype(np.float32))


@dataclass(eq=False)
class Matrix:
    """A weight matrix W (n, k) as it lies in the file: `raw` bytes of `format`, rows one after the other."""

    format: str
    raw: U8
    n: int
    k: int

    @property
    def is_float(self) -> bool:
        """Whether the format is a float one (F32, F16, BF16)."""
        return formats.FORMATS[self.format].is_float

    @cached_property
    def floats(self) -> F32:
        """The whole matrix dequantized to fp32 (n, k)."""
        return formats.dequantize(self.format, self.raw, self.n, self.k)

    @cached_property
    def integers(self) -> "Integers":
        """The integer form, unpacked on first use and kept."""
        return Integers.unpack(self)

    def rows(self, ids: I64) -> F32:
        """Dequantized rows `ids`, fp32 (len(ids), k), read straight from the file's bytes."""
        size = formats.FORMATS[self.format].row_bytes(self.k)
        picked = self.raw.reshape(self.n, size)[ids]
        return formats.dequantize(self.format, picked, len(ids), self.k)

    @classmethod
    def of_floats(cls, values: F32) -> "Matrix":
        """An F32 matrix from an array (n, k)."""
        values = np.ascontiguousarray(values, np.float32)
        return cls("F32", values.view(np.uint8).reshape(-1), values.shape[0], values.shape[1])


@dataclass(frozen=True, slots=True)
class Integers:
    """A quantized matrix ready for products: integers as exact fp32 by group, scales below 2**-60 set to 0."""

    values: F32  # (K/group, n, group)
    scales: F32  # (K/group, n)
    minimums: F32 | None  # (K/32, n, 2): the minimum of each 16 elements
    min_scales: F32 | None  # (K/32, n)
    group: int

    @classmethod
    def unpack(cls, matrix: Matrix) -> "Integers":
        """Unpack `matrix` (a quantized format)."""
        n, k = matrix.n, matrix.k
        parts = formats.unpack(matrix.format, matrix.raw, n, k)
        group = formats.FORMATS[matrix.format].group
        values = parts.values.reshape(n, k // group, group).transpose(1, 0, 2).astype(np.float32)
        minimums = min_scales = None
        if parts.minimums is not None and parts.min_scales is not None:
            minimums = parts.minimums.reshape(n, k // BLOCK, 2).transpose(1, 0, 2).astype(np.float32)
            min_scales = flush_scales(parts.min_scales).T.copy()
        return cls(np.ascontiguousarray(values), flush_scales(parts.scales).T.copy(), minimums, min_scales, group)


def flush_scales(scales: F32) -> F32:
    """Scales for products: a magnitude below 2**-60 counts as 0, so that no product of scales is far below normal."""
    return np.where(np.abs(scales) < TINY, np.float32(0), scales)


class Rows:
    """Rows x (R, K) fp32 that meet several matrices: they are quantized once, when a quantized matrix asks."""

    def __init__(self, x: F32) -> None:
        self.x = x

    @cached_property
    def quantized(self) -> QuantizedRows:
        """The rows as int8 blocks."""
        return quantize_rows(self.x)

    def pick(self, index: I64) -> "Rows":
        """The rows at `index`, quantized already if these are (a row's quantization depends on itself only)."""
        picked = Rows(self.x[index])
        if "quantized" in self.__dict__:
            picked.__dict__["quantized"] = QuantizedRows(self.quantized.q[index], self.quantized.scale[index])
        return picked


def product(rows: Rows, w: Matrix) -> F32:
    """rows (R, K) times W (N, K): fp32 (R, N); integer arithmetic for quantized formats, float for the others."""
    return float_product(rows.x, w.floats) if w.is_float else quantized_product(rows.quantized, w)


def float_product(x: F32, w: F32) -> F32:
    """x (R, K) times w (N, K) in fp32 products and the lane sum: (R, N)."""
    out = np.empty((x.shape[0], w.shape[0]), np.float32)
    step = max(1, WORK // max(1, w.size))
    for start in range(0, x.shape[0], step):
        out[start : start + step] = lane_sum(x[start : start + step, None, :] * w[None])
    return out


def quantized_product(rows: QuantizedRows, w: Matrix) -> F32:
    """Rows (R, K) times a quantized W (N, K): fp32 (R, N)."""
    integers = w.integers
    count = rows.q.shape[0]
    out = np.empty((count, w.n), np.float32)
    step = max(1, WORK // max(1, w.n * (w.k // BLOCK)))
    for start in range(0, count, step):
        part = QuantizedRows(rows.q[start : start + step], rows.scale[start : start + step])
        out[start : start + step] = _segment_sums(_block_terms(part, integers))
    return out


def _block_terms(rows: QuantizedRows, w: Integers) -> list[F32]:
    """The fp32 terms of every block of 32, each (B, R, N), in the order in which they are added."""
    count, blocks, _ = rows.q.shape
    halves = BLOCK // w.group
    q = rows.q.reshape(count, blocks * halves, w.group).transpose(1, 0, 2).astype(np.float32)
    scale = np.repeat(rows.scale.T, halves, axis=0)[:, :, None]
    isum = _exact_dot(q, w.values)
    terms = isum * (w.scales[:, None, :] * scale)
    if w.minimums is not None and w.min_scales is not None:
        sums = rows.q.reshape(count, blocks, 2, 16).sum(axis=-1, dtype=np.int32).astype(np.float32)  # exact-integers
        imin = _exact_dot(sums.transpose(1, 0, 2), w.minimums)
        terms = terms - imin * (w.min_scales[:, None, :] * rows.scale.T[:, :, None])
    return [terms[half::halves] for half in range(halves)]


def _exact_dot(a: F32, b: F32) -> F32:
    """Batched dot of integers held in fp32, (..., R, K) x (..., N, K): exact in any order, |sums| stay below 2**24."""
    return a @ b.swapaxes(-1, -2)  # exact-integers


def _segment_sums(terms: list[F32]) -> F32:
    """Add the block terms (B, R, N): four blocks one after the other from +0, then the segments by a tree."""
    blocks, rows, n = terms[0].shape
    segments = -(-blocks // BLOCKS_A_SEGMENT)
    missing = segments * BLOCKS_A_SEGMENT - blocks
    partial = np.zeros((segments, rows, n), np.float32)
    if missing:
        padding = np.zeros((missing, rows, n), np.float32)
        terms = [np.concatenate([term, padding]) for term in terms]
    for block in range(BLOCKS_A_SEGMENT):
        for term in terms:
            partial = partial + term[block::BLOCKS_A_SEGMENT]
    return tree(partial, axis=0)
