"""Log-probabilities against torch's in double precision."""

import math

import numpy as np
import pytest
import torch

from strata.engine.logprobs import logprobs
from strata.errors import RequestError


def test_logprobs_are_the_logarithm_of_the_softmax() -> None:
    """torch's log_softmax in double; ties in the order of the index. [The k-th among equals is another one.]"""
    rng = np.random.default_rng(2)
    for spread in (0.0, 1.0, 30.0, 300.0):
        row = np.round(rng.standard_normal(500) * spread).astype(np.float32)
        want = torch.log_softmax(torch.from_numpy(row).double(), 0).numpy()
        got = logprobs(row, 17, top=20)
        assert got.token == pytest.approx(want[17], rel=1e-12, abs=1e-12)
        order = sorted(range(500), key=lambda i: (-row[i], i))[:20]
        assert [token for token, _ in got.top] == order
        assert [value for _, value in got.top] == pytest.approx(want[order].tolist(), rel=1e-12, abs=1e-12)
    assert logprobs(row, 3).top == ()
    assert len(logprobs(row, 3, top=9999).top) == 500


def test_logprobs_of_infinite_and_of_nan_logits() -> None:
    row = np.array([0.0, -math.inf, 0.0], np.float32)
    assert logprobs(row, 1, top=1).token == -math.inf
    assert logprobs(row, 2).token == pytest.approx(math.log(0.5))
    assert logprobs(np.array([math.inf, 1.0], np.float32), 0).token == 0.0
    with pytest.raises(RequestError, match="NaN"):
        logprobs(np.array([0, math.nan], np.float32), 0)
