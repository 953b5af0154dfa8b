"""Ternary blocks of 256 under one float16 scale: TQ1_0 (five digits a byte) and TQ2_0 (four a byte).

Layouts: ggml-common.h of ggml (llama.cpp pull request 8151).
Each function takes uint8 (blocks, block_bytes) and returns `Unpacked` with (blocks, ...) arrays.
"""

import numpy as np

from strata.formats.unpacked import Bytes, Unpacked, half, planes, spread

# Byte b is a fraction b/256 in base 3; its n-th digit is the integer part of 3 * frac(b/256 * 3**n), minus one.
_DIGITS = np.stack([(np.arange(256) * 3**n % 256 * 3 // 256 - 1).astype(np.int16) for n in range(5)])


def unpack_tq1_0(blocks: Bytes) -> Unpacked:
    """32 bytes of five digit planes, 16 bytes of five, 4 bytes of four, d: f16; weight = d * digit."""
    values = np.empty((len(blocks), 256), np.int16)
    at = 0
    for start, width, digits in ((0, 32, 5), (32, 16, 5), (48, 4, 4)):
        packed = blocks[:, start : start + width]
        for digit in range(digits):
            values[:, at : at + width] = _DIGITS[digit][packed]
            at += width
    return Unpacked(values, spread(half(blocks, 52), 8))


def unpack_tq2_0(blocks: Bytes) -> Unpacked:
    """64 bytes of 2-bit planes, d: f16; weight = d * (q - 1), q in 0..3 although writers use 0..2."""
    values = planes(blocks[:, :64], 32, 2).astype(np.int16) - np.int16(1)
    return Unpacked(values, spread(half(blocks, 64), 8))
