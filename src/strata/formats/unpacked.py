"""The canonical integer form of a quantized tensor, and the small bit operations that every unpack shares."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Int8s = NDArray[np.int8]
Int16s = NDArray[np.int16]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Integers and scales of a quantized tensor: ``weight = scale * value - min_scale * minimum``.

    Arrays of a tensor are (rows, ...); inside this room an unpack returns the same thing with (blocks, ...).

    values: int16 (rows, K), the format's value times its integer sub-scale.
    scales: float32 (rows, K / group), group as in the format's table row.
    minimums: int16 (rows, K / 16), the integer minimum of each 16 elements, or None.
    min_scales: float32 (rows, K / 32), the scale of the minimums, or None.
    """

    values: Int16s
    scales: Floats
    minimums: Int16s | None = None
    min_scales: Floats | None = None


def half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of every block (blocks, bytes), as float32 (blocks, 1)."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def words(blocks: Bytes, start: int, stop: int, dtype: str) -> NDArray[np.unsignedinteger]:
    """Bytes start..stop of every block as little-endian unsigned integers of `dtype`, (blocks, count)."""
    view: NDArray[np.unsignedinteger] = np.ascontiguousarray(blocks[:, start:stop]).view(dtype)
    return view


def planes(packed: Bytes, width: int, bits: int) -> Bytes:
    """Split bytes into bit fields that lie plane after plane.

    packed is (blocks, n); each run of `width` bytes holds 8/bits planes of `width` elements, lowest bits first.
    Returns uint8 (blocks, n * 8/bits) in element order.
    """
    count, mask = 8 // bits, np.uint8((1 << bits) - 1)
    runs = np.ascontiguousarray(packed).reshape(len(packed), -1, width)
    out = np.empty((len(packed), runs.shape[1], count, width), np.uint8)
    for plane in range(count):
        np.bitwise_and(runs >> np.uint8(bits * plane), mask, out=out[:, :, plane])
    return out.reshape(len(packed), -1)


def nibbles(packed: Bytes) -> Bytes:
    """Both nibbles of each byte, low one first and side by side: (blocks, n) to (blocks, 2n)."""
    return planes(packed, 1, 4)


def bits(packed: Bytes) -> Bytes:
    """Every bit of each byte, lowest first: (blocks, n) to (blocks, 8n)."""
    return np.unpackbits(np.ascontiguousarray(packed), axis=1, bitorder="little")


def nibble_lookup(packed: Bytes, width: int, codebook: tuple[int, ...]) -> Int8s:
    """`planes(packed, width, 4)` through a codebook of 16 signed bytes: int8 (blocks, 2n)."""
    code = np.arange(256)
    book = np.array(codebook, np.int8)
    runs = np.ascontiguousarray(packed).reshape(len(packed), -1, width)
    out = np.empty((len(packed), runs.shape[1], 2, width), np.int8)
    out[:, :, 0] = book[code & 15][runs]
    out[:, :, 1] = book[code >> 4][runs]
    return out.reshape(len(packed), -1)


def scaled(values: NDArray[np.integer], sub_scales: NDArray[np.integer]) -> Int16s:
    """values (blocks, n) times one integer for each n/s neighbours, sub_scales (blocks, s): int16 (blocks, n)."""
    count = sub_scales.shape[1]
    runs = values.astype(np.int16).reshape(len(values), count, -1)
    runs *= sub_scales.astype(np.int16)[:, :, None]
    return runs.reshape(len(values), -1)


def spread(per_block: Floats, count: int) -> Floats:
    """One float a block, (blocks, 1), repeated for its `count` groups: (blocks, count)."""
    return np.repeat(per_block, count, axis=1)
