"""The table of tensor formats: one row a format, and the two functions that read any of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from strata.errors import FormatError
from strata.formats import i_quants, k_quants, legacy, microscaling, ternary
from strata.formats.unpacked import Bytes, Floats, Unpacked

Q_MAX = 127  # largest |q| of a quantized activation


@dataclass(frozen=True, slots=True)
class Format:
    """One row of the table: how a tensor format lies in the file and what its integers can reach.

    name: the format's name in GGUF files ("Q4_K").
    ggml_type: its number in the file.
    block: elements a block (1 for floats).
    block_bytes: bytes a block.
    group: elements per float32 scale in the unpacked form: 32, or 16 (NVFP4); 0 for float formats.
    minimums: whether the unpacked form has minimums.
    max_isum: the largest |sum of value * q| over one group with |q| <= 127; below 2**24, so exact in float32.
    unpack_blocks: uint8 (blocks, block_bytes) to `Unpacked` of (blocks, ...) arrays; None for float formats.
    """

    name: str
    ggml_type: int
    block: int
    block_bytes: int
    group: int
    minimums: bool
    max_isum: int
    unpack_blocks: Callable[[Bytes], Unpacked] | None = field(default=None, repr=False, compare=False)

    @property
    def is_float(self) -> bool:
        """Whether the weights are floats (F32, F16, BF16) and have no integer form."""
        return self.group == 0

    @property
    def bits_per_weight(self) -> float:
        """Bits in the file for each element."""
        return 8 * self.block_bytes / self.block

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of `k` elements; FormatError if `k` is not a positive multiple of the block."""
        if k <= 0 or k % self.block:
            raise FormatError(f"{self.name} stores blocks of {self.block} elements; a row of {k} does not fit them.")
        return k // self.block * self.block_bytes


def _float(name: str, ggml_type: int, size: int) -> Format:
    return Format(name, ggml_type, 1, size, 0, False, 0)


def _quantized(
    name: str,
    ggml_type: int,
    block: int,
    block_bytes: int,
    reach: int,
    unpack_blocks: Callable[[Bytes], Unpacked],
    *,
    group: int = 32,
    minimums: bool = False,
) -> Format:
    # reach: the largest sum of |value| over one group, sub-scale included (four IQ2 or eight IQ3 codebook rows).
    return Format(name, ggml_type, block, block_bytes, group, minimums, Q_MAX * reach, unpack_blocks)


# Type numbers, block sizes and bytes: ggml.h and ggml-common.h of ggml.
_TABLE = (
    _float("F32", 0, 4),
    _float("F16", 1, 2),
    _float("BF16", 30, 2),
    _quantized("Q4_0", 2, 32, 18, 32 * 8, legacy.unpack_q4_0),
    _quantized("Q4_1", 3, 32, 20, 32 * 15, legacy.unpack_q4_1, minimums=True),
    _quantized("Q5_0", 6, 32, 22, 32 * 16, legacy.unpack_q5_0),
    _quantized("Q5_1", 7, 32, 24, 32 * 31, legacy.unpack_q5_1, minimums=True),
    _quantized("Q8_0", 8, 32, 34, 32 * 128, legacy.unpack_q8_0),
    _quantized("Q2_0", 42, 64, 18, 32 * 2, legacy.unpack_q2_0),
    _quantized("Q2_K", 10, 256, 84, 32 * 3 * 15, k_quants.unpack_q2_k, minimums=True),
    _quantized("Q3_K", 11, 256, 110, 32 * 4 * 32, k_quants.unpack_q3_k),
    _quantized("Q4_K", 12, 256, 144, 32 * 15 * 63, k_quants.unpack_q4_k, minimums=True),
    _quantized("Q5_K", 13, 256, 176, 32 * 31 * 63, k_quants.unpack_q5_k, minimums=True),
    _quantized("Q6_K", 14, 256, 210, 32 * 32 * 128, k_quants.unpack_q6_k),
    _quantized("IQ1_S", 19, 256, 50, 32 * 9 * 15, i_quants.unpack_iq1_s),
    _quantized("IQ1_M", 29, 256, 56, 32 * 9 * 15, i_quants.unpack_iq1_m),
    _quantized("IQ2_XXS", 16, 256, 66, 4 * 203 * 31, i_quants.unpack_iq2_xxs),
    _quantized("IQ2_XS", 17, 256, 74, 32 * 43 * 31, i_quants.unpack_iq2_xs),
    _quantized("IQ2_S", 22, 256, 82, 32 * 43 * 31, i_quants.unpack_iq2_s),
    _quantized("IQ3_XXS", 18, 256, 98, 8 * 162 * 31, i_quants.unpack_iq3_xxs),
    _quantized("IQ3_S", 21, 256, 110, 8 * 42 * 31, i_quants.unpack_iq3_s),
    _quantized("IQ4_NL", 20, 32, 18, 32 * 127, i_quants.unpack_iq4_nl),
    _quantized("IQ4_XS", 23, 256, 136, 32 * 127 * 32, i_quants.unpack_iq4_xs),
    _quantized("TQ1_0", 34, 256, 54, 32 * 1, ternary.unpack_tq1_0),
    _quantized("TQ2_0", 35, 256, 66, 32 * 2, ternary.unpack_tq2_0),
    _quantized("MXFP4", 39, 32, 17, 32 * 12, microscaling.unpack_mxfp4),
    _quantized("NVFP4", 40, 64, 36, 16 * 12, microscaling.unpack_nvfp4, group=16),
)

FORMATS: Mapping[str, Format] = MappingProxyType({row.name: row for row in _TABLE})
_BY_TYPE = {row.ggml_type: row for row in _TABLE}


def by_ggml_type(number: int) -> Format:
    """The format with this type number in a GGUF file; FormatError naming the known ones otherwise."""
    found = _BY_TYPE.get(number)
    if found is None:
        known = ", ".join(f"{row.ggml_type} {row.name}" for row in sorted(_TABLE, key=lambda row: row.ggml_type))
        raise FormatError(f"Tensor type {number} is not known; the known ones are {known}.")
    return found


def by_name(name: str) -> Format:
    """The format called `name`; FormatError naming the known ones otherwise."""
    found = FORMATS.get(name)
    if found is None:
        raise FormatError(f"Tensor format {name!r} is not known; the known ones are {', '.join(FORMATS)}.")
    return found


def _checked(row: Format, raw: Bytes, rows: int, k: int) -> Bytes:
    expected = rows * row.row_bytes(k)
    if rows <= 0:
        raise FormatError(f"{row.name}: {rows} rows were asked for; a tensor has at least one.")
    if raw.dtype != np.uint8:
        raise FormatError(f"{row.name}: raw bytes have to be uint8, not {raw.dtype}.")
    if raw.size != expected:
        raise FormatError(f"{row.name}: {rows} rows of {k} elements take {expected} bytes, but {raw.size} were given.")
    return np.ascontiguousarray(raw).reshape(-1, row.block_bytes)


def unpack(name: str, raw: Bytes, rows: int, k: int) -> Unpacked:
    """Unpack a quantized tensor of (rows, k) elements to integers and scales.

    raw: uint8 of any shape in C order, rows * row_bytes(k) bytes. Special scales (infinite, NaN, denormal) are kept.
    Raises FormatError for an unknown or float format, a wrong number of bytes, or a `k` that the block does not divide.
    """
    row = by_name(name)
    if row.unpack_blocks is None:
        raise FormatError(f"{name} is a float format and has no integer form; read it with dequantize.")
    blocks = _checked(row, raw, rows, k)
    with np.errstate(invalid="ignore"):  # signalling NaN scales
        parts = row.unpack_blocks(blocks)
    return Unpacked(
        parts.values.reshape(rows, k),
        parts.scales.reshape(rows, k // row.group),
        None if parts.minimums is None else parts.minimums.reshape(rows, k // 16),
        None if parts.min_scales is None else parts.min_scales.reshape(rows, k // 32),
    )


def _floats(row: Format, raw: Bytes, rows: int, k: int) -> Floats:
    data = _checked(row, raw, rows, k).reshape(-1)
    if row.name == "BF16":
        return (data.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32).reshape(rows, k)
    with np.errstate(invalid="ignore"):
        return data.view("<f4" if row.name == "F32" else "<f2").astype(np.float32).reshape(rows, k)


def dequantize(name: str, raw: Bytes, rows: int, k: int) -> Floats:
    """The weights of a tensor of (rows, k) elements in any known format, float32 (rows, k).

    Each is scale * value, minus min_scale * minimum; the products are exact, so only the subtraction rounds.
    Arguments and errors as `unpack`.
    """
    row = by_name(name)
    if row.is_float:
        return _floats(row, raw, rows, k)
    parts = unpack(name, raw, rows, k)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite scales times zero; e8m0 near its top
        weights = parts.values.astype(np.float32)
        weights.reshape(rows, -1, row.group)[...] *= parts.scales[:, :, None]
        if parts.minimums is not None and parts.min_scales is not None:
            offsets = parts.minimums * np.repeat(parts.min_scales, 2, axis=1)
            weights.reshape(rows, -1, 16)[...] -= offsets[:, :, None]
    return weights
