"""I-quants: codebook formats IQ1 to IQ4, super-blocks of 256 (IQ4_NL: blocks of 32).

Layouts: ggml-common.h of ggml. Eight (IQ3: four) neighbours are one codebook row; fractions in the sub-scales are
folded into odd integers 2s + 1 with d/8 (IQ1, IQ2), d/4 (IQ3_XXS) or d (IQ3_S).
Each function takes uint8 (blocks, block_bytes) and returns `Unpacked` with (blocks, ...) arrays.
"""

import numpy as np
from numpy.typing import NDArray

from strata.formats import grids
from strata.formats.unpacked import (
    Bytes,
    Floats,
    Int8s,
    Int16s,
    Unpacked,
    bits,
    half,
    nibble_lookup,
    nibbles,
    planes,
    scaled,
    spread,
    words,
)

_IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_EIGHTH, _QUARTER = np.float32(0.125), np.float32(0.25)


def _sign_rows() -> NDArray[np.uint64]:
    # Row s: eight bytes of +1 or -1, element i negative when bit i of s is set.
    negative = np.arange(256)[:, None] >> np.arange(8) & 1
    rows: NDArray[np.uint64] = np.ascontiguousarray((1 - 2 * negative).astype(np.int8)).view(np.uint64).reshape(-1)
    return rows


def _even_sign_codes() -> NDArray[np.intp]:
    # Seven stored sign bits; the eighth makes the number of negative elements even.
    code = np.arange(128)
    odd = (code[:, None] >> np.arange(7) & 1).sum(axis=1) & 1
    full: NDArray[np.intp] = code | odd << 7
    return full


_SIGNS = _sign_rows()
_EVEN_SIGNS = _SIGNS[_even_sign_codes()]


def _bytes_of(table: NDArray[np.unsignedinteger], index: NDArray[np.integer]) -> Int8s:
    # A codebook row is one machine word, so that a look-up moves eight (four) elements at once.
    rows: Int8s = table[index].reshape(len(index), -1).view(np.int8)
    return rows


def _signed(table: NDArray[np.unsignedinteger], index: NDArray[np.integer], signs: NDArray[np.uint64]) -> Int8s:
    values = _bytes_of(table, index)
    values *= signs.reshape(len(index), -1).view(np.int8)
    return values


def _odd(sub_scales: NDArray[np.integer]) -> Int16s:
    odd: Int16s = 2 * sub_scales.astype(np.int16) + 1
    return odd


def _packed_signs(aux: NDArray[np.unsignedinteger]) -> NDArray[np.uint64]:
    # Four 7-bit sign codes in the low 28 bits of each 32-bit word: (blocks, 8) to (blocks, 32).
    codes = aux[:, :, None] >> np.array([0, 7, 14, 21], np.uint32) & np.uint32(127)
    signs: NDArray[np.uint64] = _EVEN_SIGNS[codes.reshape(len(aux), -1)]
    return signs


def unpack_iq2_xxs(blocks: Bytes) -> Unpacked:
    """d: f16, then for each 32: four row numbers (bytes), four 7-bit sign codes and a 4-bit scale (32 bits)."""
    pairs = words(blocks, 2, 66, "<u4")
    rows = np.ascontiguousarray(pairs[:, 0::2]).view(np.uint8)
    aux = pairs[:, 1::2]
    values = scaled(_signed(grids.IQ2_XXS, rows, _packed_signs(aux)), _odd(aux >> np.uint32(28)))
    return Unpacked(values, spread(half(blocks, 0) * _EIGHTH, 8))


def unpack_iq2_xs(blocks: Bytes) -> Unpacked:
    """d: f16, 32 words of a 9-bit row number and a 7-bit sign code, 8 bytes of 4-bit scales (one a 16)."""
    codes = words(blocks, 2, 66, "<u2")
    signs = _EVEN_SIGNS[codes >> np.uint16(9)]
    values = scaled(_signed(grids.IQ2_XS, codes & np.uint16(511), signs), _odd(nibbles(blocks[:, 66:])))
    return Unpacked(values, spread(half(blocks, 0) * _EIGHTH, 8))


def unpack_iq2_s(blocks: Bytes) -> Unpacked:
    """d: f16, 32 low bytes of row numbers, 32 sign bytes, 8 bytes of their high bits, 8 of 4-bit scales (one a 16)."""
    rows = blocks[:, 2:34] | planes(blocks[:, 66:74], 1, 2).astype(np.uint16) << np.uint16(8)
    values = scaled(_signed(grids.IQ2_S, rows, _SIGNS[blocks[:, 34:66]]), _odd(nibbles(blocks[:, 74:])))
    return Unpacked(values, spread(half(blocks, 0) * _EIGHTH, 8))


def unpack_iq3_xxs(blocks: Bytes) -> Unpacked:
    """d: f16, 64 row numbers (four elements each), then for each 32: four 7-bit sign codes and a 4-bit scale."""
    aux = words(blocks, 66, 98, "<u4")
    values = scaled(_signed(grids.IQ3_XXS, blocks[:, 2:66], _packed_signs(aux)), _odd(aux >> np.uint32(28)))
    return Unpacked(values, spread(half(blocks, 0) * _QUARTER, 8))


def unpack_iq3_s(blocks: Bytes) -> Unpacked:
    """d: f16, 64 low bytes of row numbers, 8 of their ninth bits, 32 sign bytes, 4 of 4-bit scales (one a 32)."""
    rows = blocks[:, 2:66] | bits(blocks[:, 66:74]).astype(np.uint16) << np.uint16(8)
    values = scaled(_signed(grids.IQ3_S, rows, _SIGNS[blocks[:, 74:106]]), _odd(nibbles(blocks[:, 106:])))
    return Unpacked(values, spread(half(blocks, 0), 8))


def _iq1_values(rows: NDArray[np.integer], negative: NDArray[np.integer]) -> Int8s:
    # weight = scale * (grid +- 1/8), kept as the integer 8 * grid +- 1; rows and negative are (blocks, 32).
    values = _bytes_of(grids.IQ1, rows)
    values *= np.int8(8)
    eighth = np.int8(1) - np.int8(2) * (negative != 0)
    values.reshape(len(rows), -1, 8)[...] += eighth[:, :, None]
    return values


def unpack_iq1_s(blocks: Bytes) -> Unpacked:
    """d: f16, 32 low bytes of row numbers, for each 32 a word: four times 3 high bits, 3-bit scale, sign of the 1/8."""
    high = words(blocks, 34, 50, "<u2")
    top = high[:, :, None] >> np.array([0, 3, 6, 9], np.uint16) & np.uint16(7)
    rows = blocks[:, 2:34] | top.reshape(len(blocks), -1) << np.uint16(8)
    negative = np.repeat(high >> np.uint16(15), 4, axis=1)
    values = scaled(_iq1_values(rows, negative), _odd(high >> np.uint16(12) & np.uint16(7)))
    return Unpacked(values, spread(half(blocks, 0) * _EIGHTH, 8))


def _iq1_m_scale(packed: NDArray[np.unsignedinteger]) -> Floats:
    # The float16 lies in the top nibbles of the four scale words, lowest nibble first.
    top = packed >> np.uint16(12) << np.array([0, 4, 8, 12], np.uint16)
    return np.bitwise_or.reduce(top, axis=1, keepdims=True).astype("<u2").view("<f2").astype(np.float32)


def unpack_iq1_m(blocks: Bytes) -> Unpacked:
    """32 low bytes of row numbers, 32 nibbles (3 high bits, sign of the 1/8), 4 words of 3-bit scales (one a 16)."""
    packed = words(blocks, 48, 56, "<u2")
    extra = nibbles(blocks[:, 32:48])
    rows = blocks[:, :32] | (extra & np.uint8(7)).astype(np.uint16) << np.uint16(8)
    sub = packed[:, :, None] >> np.array([0, 3, 6, 9], np.uint16) & np.uint16(7)
    values = scaled(_iq1_values(rows, extra & np.uint8(8)), _odd(sub.reshape(len(blocks), -1)))
    return Unpacked(values, spread(_iq1_m_scale(packed) * _EIGHTH, 8))


def unpack_iq4_nl(blocks: Bytes) -> Unpacked:
    """d: f16, 16 bytes of nibbles (elements 0..15 low, 16..31 high) into a codebook of 16."""
    return Unpacked(nibble_lookup(blocks[:, 2:], 16, _IQ4_VALUES).astype(np.int16), half(blocks, 0))


def unpack_iq4_xs(blocks: Bytes) -> Unpacked:
    """d: f16, eight scales (minus 32) in 2-bit high and 4-bit low parts, 128 bytes of nibbles into IQ4_NL's book."""
    sub = nibbles(blocks[:, 4:8]) | planes(blocks[:, 2:4], 1, 2) << np.uint8(4)
    values = scaled(nibble_lookup(blocks[:, 8:], 16, _IQ4_VALUES), sub.astype(np.int16) - np.int16(32))
    return Unpacked(values, spread(half(blocks, 0), 8))
