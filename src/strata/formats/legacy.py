"""Blocks with one float16 scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 (32 elements) and Q2_0 (64).

Layouts: ggml-common.h of ggml. Elements 0..15 of a 32-block lie in the low nibbles, 16..31 in the high ones.
Q2_0 is ggml's type 42 with blocks of 64; a fork has used that name and number for blocks of 128, another format.
Each function takes uint8 (blocks, block_bytes) and returns `Unpacked` with (blocks, ...) arrays.
"""

import numpy as np

from strata.formats.unpacked import Bytes, Floats, Int16s, Unpacked, bits, half, planes, spread


def _with_offset(values: Bytes, offset: int) -> Int16s:
    out = values.astype(np.int16)
    out -= np.int16(offset)
    return out


def _with_minimum(values: Bytes, scale: Floats, minimum: Floats) -> Unpacked:
    # The file adds m; the canonical form subtracts, so dmin = -m with integer minimum 1.
    ones = np.ones((len(values), values.shape[1] // 16), np.int16)
    return Unpacked(values.astype(np.int16), scale, ones, -minimum)


def unpack_q4_0(blocks: Bytes) -> Unpacked:
    """d: f16, 16 bytes of nibbles; weight = d * (q - 8)."""
    return Unpacked(_with_offset(planes(blocks[:, 2:], 16, 4), 8), half(blocks, 0))


def unpack_q4_1(blocks: Bytes) -> Unpacked:
    """d, m: f16, 16 bytes of nibbles; weight = d * q + m."""
    return _with_minimum(planes(blocks[:, 4:], 16, 4), half(blocks, 0), half(blocks, 2))


def _five_bits(high: Bytes, low: Bytes) -> Bytes:
    return planes(low, 16, 4) | (bits(high) << np.uint8(4))


def unpack_q5_0(blocks: Bytes) -> Unpacked:
    """d: f16, 32 fifth bits, 16 bytes of nibbles; weight = d * (q - 16)."""
    return Unpacked(_with_offset(_five_bits(blocks[:, 2:6], blocks[:, 6:]), 16), half(blocks, 0))


def unpack_q5_1(blocks: Bytes) -> Unpacked:
    """d, m: f16, 32 fifth bits, 16 bytes of nibbles; weight = d * q + m."""
    return _with_minimum(_five_bits(blocks[:, 4:8], blocks[:, 8:]), half(blocks, 0), half(blocks, 2))


def unpack_q8_0(blocks: Bytes) -> Unpacked:
    """d: f16, 32 signed bytes; weight = d * q."""
    return Unpacked(blocks[:, 2:].view(np.int8).astype(np.int16), half(blocks, 0))


_FOUR_CODES = (np.arange(256, dtype=np.int64)[:, None] >> np.array([0, 2, 4, 6]) & 3) - 1
_Q2_0_WORDS = np.ascontiguousarray(_FOUR_CODES.astype(np.int8)).view(np.uint32).reshape(-1)


def unpack_q2_0(blocks: Bytes) -> Unpacked:
    """d: f16, 16 bytes of four neighbours each, lowest bits first; weight = d * (q - 1), q in 0..3."""
    values = _Q2_0_WORDS[blocks[:, 2:]].view(np.int8).astype(np.int16)
    return Unpacked(values, spread(half(blocks, 0), 2))
