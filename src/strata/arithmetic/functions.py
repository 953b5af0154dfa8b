"""exp, log1p, sigmoid, SiLU, softplus, relu, rint and the cache's roundings in fp32 add, multiply and divide only.

Every operation is IEEE single, rounded to nearest even, multiply and add apart; so numpy, C++ and Triton agree in
every bit (docs/arithmetic.md, section 5). Accuracy against a double exp: below 2 ulp.
"""

import numpy as np

from strata.arithmetic.types import F32

f32 = np.float32

RINT_MAGIC = f32(12582912.0)  # 1.5 * 2**23: adding it leaves the integer in the low mantissa bits
EXP_LOW = f32(-87.0)  # below: 0; exp(-87) is still a normal number
EXP_HIGH = f32(88.0)  # above: exp(88), which is finite
LOG2E = f32(1.44269504)
LN2_HIGH = f32(0.693359375)  # 355/512: n * LN2_HIGH is exact for |n| < 2**15
LN2_LOW = f32(-2.12194440e-4)
EXP_TERMS = tuple(f32(1.0 / n) for n in (5040, 720, 120, 24, 6, 2, 1, 1))  # Taylor, highest power first
LOG_TERMS = tuple(f32(1.0 / n) for n in (9, 7, 5, 3))  # atanh series in s**2, highest power first
SOFTPLUS_LINEAR = f32(20.0)
SQRT_HALF_BITS = np.int32(0x3F3504F3)


def rint(x: F32) -> F32:
    """Nearest integer, ties to even, for |x| < 2**22, by adding and subtracting 1.5 * 2**23."""
    return (x + RINT_MAGIC) - RINT_MAGIC


def exp(x: F32) -> F32:
    """exp(x): 0 below -87, exp(88) above 88, exactly 1 at 0; NaN stays NaN. Source: Cody and Waite reduction."""
    clamped = np.where(x > EXP_HIGH, EXP_HIGH, np.where(x < EXP_LOW, EXP_LOW, x))
    shifted = clamped * LOG2E + RINT_MAGIC
    n = shifted - RINT_MAGIC
    r = (clamped - n * LN2_HIGH) - n * LN2_LOW
    p = np.full_like(r, EXP_TERMS[0])
    for term in EXP_TERMS[1:]:
        p = p * r + term
    exponent = shifted.view(np.int32) - RINT_MAGIC.view(np.int32)
    scale = ((exponent + np.int32(127)) << np.int32(23)).view(np.float32)
    return np.where(x < EXP_LOW, f32(0), p * scale)


def log1p(y: F32) -> F32:
    """log(1 + y) for finite y >= 0: exponent and mantissa of u = 1 + y, an atanh series, and u's rounding error."""
    u = f32(1) + y
    lost = (y - (u - f32(1))) / u
    bits = u.view(np.int32)
    exponent = (bits - SQRT_HALF_BITS) >> np.int32(23)
    mantissa = (bits - (exponent << np.int32(23))).view(np.float32)
    s = (mantissa - f32(1)) / (mantissa + f32(1))
    z = s * s
    p = np.full_like(z, LOG_TERMS[0])
    for term in LOG_TERMS[1:]:
        p = p * z + term
    log_mantissa = (s + s) + ((s + s) * z) * p
    e = exponent.astype(np.float32)
    return e * LN2_HIGH + ((e * LN2_LOW + log_mantissa) + lost)


def sigmoid(x: F32) -> F32:
    """1 / (1 + exp(-x)) with the exponential of -|x|, so that nothing overflows and no denormal appears."""
    e = exp(-np.abs(x))
    return np.where(x >= 0, f32(1), e) / (f32(1) + e)


def silu(x: F32) -> F32:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def softplus(x: F32) -> F32:
    """log(1 + exp(x)); x itself above 20."""
    return np.where(x > SOFTPLUS_LINEAR, x, log1p(exp(np.where(x > SOFTPLUS_LINEAR, f32(0), x))))


def relu(x: F32) -> F32:
    """x where x > 0, else +0 (never -0); NaN becomes +0, as the comparison says."""
    return np.where(x > 0, x, f32(0))


def round_to(x: F32, kind: str) -> F32:
    """x rounded to the nearest value (ties to even) of the cache's type: 'f32', 'bf16' or 'f16'; returned as fp32."""
    if kind == "f32":
        return x
    if kind == "f16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), x, rounded.view(np.float32))


def constant_rsqrt(n: int) -> np.float32:
    """1/sqrt(n) as the correctly rounded fp32 of a double: the attention scale and the delta rule's query scale."""
    return f32(1.0 / np.sqrt(np.float64(n)))
