"""K-quants: super-blocks of 256 with integer sub-scales (and minimums) under one float16 scale (and one dmin).

Layouts: ggml-common.h of ggml (llama.cpp pull request 1684). Sub-blocks of 16 elements in Q2_K, Q3_K and Q6_K, of 32 in
Q4_K and Q5_K. Each function takes uint8 (blocks, block_bytes) and returns `Unpacked` with (blocks, ...) arrays.
"""

import numpy as np
from numpy.typing import NDArray

from strata.formats.unpacked import Bytes, Unpacked, half, planes, scaled, spread


def unpack_q2_k(blocks: Bytes) -> Unpacked:
    """16 bytes (scale low nibble, minimum high), 64 bytes of 2-bit planes, d, dmin: f16."""
    sub = blocks[:, :16]
    values = scaled(planes(blocks[:, 16:80], 32, 2), sub & np.uint8(15))
    minimums = (sub >> np.uint8(4)).astype(np.int16)
    return Unpacked(values, spread(half(blocks, 80), 8), minimums, spread(half(blocks, 82), 8))


def _q3_scales(packed: Bytes) -> NDArray[np.int16]:
    # 16 scales of six bits: low nibbles in bytes 0..7, two high bits in the 2-bit planes of bytes 8..11.
    low = planes(packed[:, :8], 8, 4)
    high = planes(packed[:, 8:], 4, 2)
    return (low | (high << np.uint8(4))).astype(np.int16) - np.int16(32)


def unpack_q3_k(blocks: Bytes) -> Unpacked:
    """32 bytes of third bits, 64 bytes of 2-bit planes, 12 bytes of 6-bit scales, d: f16; a clear third bit is -4."""
    value = planes(blocks[:, 32:96], 32, 2) | (planes(blocks[:, :32], 32, 1) << np.uint8(2))
    signed = value.view(np.int8) - np.int8(4)
    return Unpacked(scaled(signed, _q3_scales(blocks[:, 96:108])), spread(half(blocks, 108), 8))


def _scales_and_minimums(packed: Bytes) -> tuple[Bytes, Bytes]:
    # Eight scales and eight minimums of six bits in 12 bytes: the first four of each whole in bytes 0..7, whose two
    # spare bits are the high bits of the last four; their low nibbles share bytes 8..11.
    first_scales, first_minimums, low = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    six, four, top = np.uint8(63), np.uint8(15), np.uint8(48)
    scales = [first_scales & six, (low & four) | (first_scales >> np.uint8(2) & top)]
    minimums = [first_minimums & six, (low >> np.uint8(4)) | (first_minimums >> np.uint8(2) & top)]
    return np.concatenate(scales, axis=1), np.concatenate(minimums, axis=1)


def _with_minimums(blocks: Bytes, values: Bytes) -> Unpacked:
    # d and dmin at bytes 0 and 2, then the 12 packed bytes; one minimum a 32 is repeated for both its halves.
    scales, minimums = _scales_and_minimums(blocks[:, 4:16])
    halves = np.repeat(minimums.astype(np.int16), 2, axis=1)
    return Unpacked(scaled(values, scales), spread(half(blocks, 0), 8), halves, spread(half(blocks, 2), 8))


def unpack_q4_k(blocks: Bytes) -> Unpacked:
    """d, dmin: f16, 12 bytes of 6-bit scales and minimums, 128 bytes of 4-bit planes."""
    return _with_minimums(blocks, planes(blocks[:, 16:], 32, 4))


def unpack_q5_k(blocks: Bytes) -> Unpacked:
    """d, dmin: f16, 12 bytes of 6-bit scales and minimums, 32 bytes of fifth bits, 128 bytes of 4-bit planes."""
    return _with_minimums(blocks, planes(blocks[:, 48:], 32, 4) | (planes(blocks[:, 16:48], 32, 1) << np.uint8(4)))


def unpack_q6_k(blocks: Bytes) -> Unpacked:
    """128 bytes of 4-bit planes, 64 bytes of 2-bit planes, 16 signed bytes of scales, d: f16; value q - 32."""
    value = planes(blocks[:, :128], 64, 4) | (planes(blocks[:, 128:192], 32, 2) << np.uint8(4))
    signed = value.view(np.int8) - np.int8(32)
    return Unpacked(scaled(signed, blocks[:, 192:208].view(np.int8)), spread(half(blocks, 208), 8))
