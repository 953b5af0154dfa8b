"""Log-probabilities that are told to a client. No token depends on them, so they are computed in double precision."""

import math
from dataclasses import dataclass

import numpy as np

from strata.arithmetic.types import F32
from strata.errors import RequestError


@dataclass(frozen=True, slots=True)
class LogProbs:
    """Of the token drawn, and of the most likely ones: (token, log-probability), ties to the lower index first."""

    token: float
    top: tuple[tuple[int, float], ...]


def logprobs(logits: F32, token: int, top: int = 0) -> LogProbs:
    """Natural logarithms of the softmax of one row (V,), of `token` and of the `top` most likely.

    The row is the model's own, or what penalties made of it; temperature and filters do not enter. A banned token has
    minus infinity. Raises RequestError on a NaN logit.
    """
    if np.isnan(logits).any():
        raise RequestError("The model gave a NaN logit: its file may be damaged.")
    row = logits.astype(np.float64)
    largest = float(row.max())
    if math.isinf(largest):
        share = np.where(row == largest, 0.0, -math.inf)
        normal = math.log(int(np.count_nonzero(row == largest)))
    else:
        share = row - largest
        normal = math.log(math.fsum(map(math.exp, share[share > -745.0].tolist())))
    count = min(top, len(row))
    best: list[int] = []
    if count > 0:
        least = np.partition(row, len(row) - count)[len(row) - count]
        pool = np.nonzero(row >= least)[0]
        best = pool[np.argsort(-row[pool], kind="stable")][:count].tolist()
    return LogProbs(float(share[token]) - normal, tuple((at, float(share[at]) - normal) for at in best))
