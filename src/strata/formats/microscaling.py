"""Four-bit floats (e2m1) under a shared small float: MXFP4 (e8m0 a 32) and NVFP4 (ue4m3 a 16).

MXFP4: OCP Microscaling Formats 1.0. NVFP4: NVIDIA's, as ggml-common.h packs it. The values of e2m1 are doubled to be
integers and the scales halved. A tensor's own NVFP4 scale is a separate tensor, not part of this form.
Each function takes uint8 (blocks, block_bytes) and returns `Unpacked` with (blocks, ...) arrays.
"""

import numpy as np

from strata.formats.unpacked import Bytes, Floats, Unpacked, nibble_lookup

_DOUBLED_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _half_e8m0() -> Floats:
    # 2**(e - 127) / 2; ggml reads 255 (NaN in the OCP text) as the plain power, and so do we.
    exponents: Floats = np.ldexp(np.float32(1), np.arange(256) - 128)
    return exponents


def _half_ue4m3() -> Floats:
    # As ggml reads it: bit 7 does not count, and 0x7F (NaN) is zero.
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, (code & 7).astype(np.float32)
    normal = np.ldexp(np.float32(8) + mantissa, exponent - 11)
    value: Floats = np.where(exponent == 0, np.ldexp(mantissa, -10), normal).astype(np.float32)
    value[0x7F] = 0
    return value


_E8M0 = _half_e8m0()
_UE4M3 = _half_ue4m3()


def unpack_mxfp4(blocks: Bytes) -> Unpacked:
    """e: e8m0, 16 bytes of nibbles (elements 0..15 low, 16..31 high); weight = 2**(e - 128) * (2 * e2m1)."""
    return Unpacked(nibble_lookup(blocks[:, 1:], 16, _DOUBLED_E2M1).astype(np.int16), _E8M0[blocks[:, :1]])


def unpack_nvfp4(blocks: Bytes) -> Unpacked:
    """Four ue4m3 scales, four runs of 8 bytes (elements 0..7 low, 8..15 high); weight = d / 2 * (2 * e2m1)."""
    return Unpacked(nibble_lookup(blocks[:, 4:], 8, _DOUBLED_E2M1).astype(np.int16), _UE4M3[blocks[:, :4]])
