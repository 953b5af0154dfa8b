"""Drawing a token in C++, with the bits of `strata.arithmetic.sampling` (docs/arithmetic.md, section 15)."""

import math

import numpy as np

from strata.arithmetic.sampling import MASK, Sampling
from strata.arithmetic.types import F32
from strata.cpu import _native
from strata.errors import RequestError


def sample(logits: F32, sampling: Sampling, *, choice: int, position: int) -> int:
    """Draw the token at `position` from one row of logits (V,); RequestError on a NaN logit."""
    if sampling.temperature <= 0:
        token = int(logits.argmax())  # numpy's is vectorized, takes the lowest among equals, and finds a NaN first
        return _checked(-1 if np.isnan(logits[token]) else token, position)
    token = _native.sample(
        np.ascontiguousarray(logits, np.float32),
        sampling.temperature,
        sampling.top_p,
        max(0, sampling.top_k),
        math.ceil(sampling.min_p * 2**30) if sampling.min_p else 0,
        sampling.seed & MASK,
        choice,
        position,
    )
    return _checked(token, position)


def _checked(token: int, position: int) -> int:
    if token < 0:
        raise RequestError(f"The model gave a NaN logit at position {position}: its file may be damaged.")
    return token
