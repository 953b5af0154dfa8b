"""Rotary position embedding from one table a model (docs/arithmetic.md, section 7).

Source: Su et al., RoFormer (2021), in the half-split form, on the first `dim` values of a head only.
"""

import decimal

import numpy as np
import numpy.typing as npt

from strata.arithmetic.types import F32, I64

F64 = npt.NDArray[np.float64]

# pi/2 in three parts; the first two have 33 significant bits, so that n * part is exact for n < 2**20
PIO2_HIGH = np.float64(1.57079632673412561417e00)
PIO2_MIDDLE = np.float64(6.07710050630396597660e-11)
PIO2_LOW = np.float64(2.02226624879595063154e-21)
TWO_OVER_PI = np.float64(0.63661977236758134308)
RINT_MAGIC64 = np.float64(6755399441055744.0)  # 1.5 * 2**52
SIN_TERMS = tuple(
    np.float64(s / d)
    for s, d in ((-1, 1307674368000), (1, 6227020800), (-1, 39916800), (1, 362880), (-1, 5040), (1, 120), (-1, 6))
)
COS_TERMS = tuple(
    np.float64(s / d)
    for s, d in (
        (1, 20922789888000),
        (-1, 87178291200),
        (1, 479001600),
        (-1, 3628800),
        (1, 40320),
        (-1, 720),
        (1, 24),
        (-1, 2),
    )
)
GROWTH = 1024


def inverse_frequencies(base: float, dim: int) -> F32:
    """base ** (-2i / dim) for i < dim/2, each the correctly rounded fp32 of a 40-digit decimal power."""
    with decimal.localcontext() as context:
        context.prec = 40
        exponents = [decimal.Decimal(-2 * i) / decimal.Decimal(dim) for i in range(dim // 2)]
        return np.array([float(decimal.Decimal(base) ** e) for e in exponents], np.float64).astype(np.float32)


def sin_cos(angle: F64) -> tuple[F64, F64]:
    """sin and cos of angles >= 0 in double add and multiply only (Taylor after reduction by pi/2)."""
    shifted = angle * TWO_OVER_PI + RINT_MAGIC64
    n = shifted - RINT_MAGIC64
    quadrant = shifted.view(np.int64) & 3
    r = ((angle - n * PIO2_HIGH) - n * PIO2_MIDDLE) - n * PIO2_LOW
    z = r * r
    s = np.full_like(z, SIN_TERMS[0])
    for term in SIN_TERMS[1:]:
        s = s * z + term
    s = r + (r * z) * s
    c = np.full_like(z, COS_TERMS[0])
    for term in COS_TERMS[1:]:
        c = c * z + term
    c = 1.0 + z * c
    swapped = (quadrant & 1) == 1
    sine = np.where(swapped, c, s)
    cosine = np.where(swapped, s, c)
    return np.where(quadrant >= 2, -sine, sine), np.where((quadrant == 1) | (quadrant == 2), -cosine, cosine)


class RopeTable:
    """cos and sin of position * frequency, made once a model and grown as positions are reached.

    The angle is an fp32 product; its sine and cosine are computed in double and rounded to fp32.
    """

    def __init__(self, base: float, dim: int) -> None:
        self.dim = dim
        self.frequencies = inverse_frequencies(base, dim)
        self._cos = np.empty((0, dim // 2), np.float32)
        self._sin = np.empty((0, dim // 2), np.float32)

    def at(self, positions: I64) -> tuple[F32, F32]:
        """cos and sin, fp32 (len(positions), dim/2) each."""
        need = int(positions.max()) + 1 if positions.size else 0
        if need > len(self._cos):
            self._grow(-(-need // GROWTH) * GROWTH)
        return self._cos[positions], self._sin[positions]

    def _grow(self, length: int) -> None:
        fresh = np.arange(len(self._cos), length, dtype=np.float32)
        angle = fresh[:, None] * self.frequencies
        sine, cosine = sin_cos(angle.astype(np.float64))
        self._cos = np.concatenate([self._cos, cosine.astype(np.float32)])
        self._sin = np.concatenate([self._sin, sine.astype(np.float32)])


def apply_rope(x: F32, cos: F32, sin: F32) -> F32:
    """Rotate the first `dim` values of heads x (R, H, D): a' = a*cos - b*sin, b' = b*cos + a*sin, b dim/2 after a.

    cos, sin: (R, dim/2).
    """
    half = cos.shape[-1]
    c, s = cos[:, None, :], sin[:, None, :]
    a, b = x[..., :half], x[..., half : 2 * half]
    return np.concatenate([a * c - b * s, b * c + a * s, x[..., 2 * half :]], axis=-1)
