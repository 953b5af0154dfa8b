"""Drawing a token from logits: integers after one exponential, so that every device draws the same token.

docs/arithmetic.md, section 15. Philox: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3 (2011), 4x64-10.
"""

import math
from dataclasses import dataclass

import numpy as np

from strata.arithmetic.functions import exp
from strata.arithmetic.types import F32
from strata.errors import RequestError

MASK = (1 << 64) - 1
PHILOX_MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
PHILOX_WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
PHILOX_ROUNDS = 10
WEIGHT_ONE = np.float32(2.0**30)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to draw: temperature <= 0 is greedy; top_k 0, top_p 1 and min_p 0 keep everything."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int = 0


def philox(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Four 64-bit words of Philox4x64-10."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(PHILOX_ROUNDS):
        first, second = PHILOX_MULTIPLIERS[0] * a, PHILOX_MULTIPLIERS[1] * c
        a, b, c, d = (second >> 64) ^ b ^ k0, second & MASK, (first >> 64) ^ d ^ k1, first & MASK
        k0, k1 = (k0 + PHILOX_WEYL[0]) & MASK, (k1 + PHILOX_WEYL[1]) & MASK
    return a, b, c, d


def argmax(logits: F32) -> int:
    """The index of the largest logit, the lowest among equals."""
    return int(np.argmax(logits + np.float32(0)))


def sample(logits: F32, sampling: Sampling, *, choice: int, position: int) -> int:
    """Draw the token at `position` from one row of logits (V,); the same for the same (seed, choice, position).

    Candidates in the order (logit, lower index first): top_k keeps the first k; weight = rint(exp(l - l_max) * 2^30)
    with l = logit / temperature; min_p keeps weights >= min_p * 2^30; top_p keeps the shortest prefix whose sum reaches
    top_p of the total; the draw is the high word of philox64 * total. Raises RequestError on a NaN logit.
    """
    if np.isnan(logits).any():
        raise RequestError(f"The model gave a NaN logit at position {position}: its file may be damaged.")
    if sampling.temperature <= 0:
        return argmax(logits)
    order = _candidates(logits, sampling.top_k)
    scaled = logits[order] / np.float32(sampling.temperature)
    weights = np.rint(exp(scaled - scaled[0]) * WEIGHT_ONE).astype(np.uint64)
    weights = (
        weights[: int(np.count_nonzero(weights >= math.ceil(sampling.min_p * 2**30)))] if sampling.min_p else weights
    )
    sums = np.cumsum(weights, dtype=np.uint64)  # exact-integers
    if sampling.top_p < 1:
        need = math.ceil(sampling.top_p * float(sums[-1]))
        sums = sums[: int(np.searchsorted(sums, need, side="left")) + 1]
    word = philox((sampling.seed & MASK, choice), (position, 0, 0, 0))[0]
    drawn = (word * int(sums[-1])) >> 64
    return int(order[int(np.searchsorted(sums, drawn, side="right"))])


def _candidates(logits: F32, top_k: int) -> np.ndarray:
    """Token ids by (logit, lower index first), the best `top_k` of them (0: all)."""
    clean = logits + np.float32(0)
    if 0 < top_k < len(clean):
        threshold = np.partition(clean, len(clean) - top_k)[len(clean) - top_k]
        pool = np.nonzero(clean >= threshold)[0]
        return pool[np.argsort(-clean[pool], kind="stable")][:top_k]
    return np.argsort(-clean, kind="stable")
