"""Draws in C++ against the numpy reference."""

import numpy as np
import pytest

from strata.arithmetic import sampling
from strata.arithmetic.sampling import Sampling
from strata.cpu import _native
from strata.cpu.sampling import sample
from strata.errors import RequestError

pytestmark = pytest.mark.usefixtures("isa")
RULES = [
    Sampling(),
    Sampling(1.0),
    Sampling(0.7, top_p=0.9),
    Sampling(1.5, top_p=0.5, top_k=20),
    Sampling(1.0, top_k=1),
    Sampling(1.0, top_k=7, min_p=0.1),
    Sampling(0.3, min_p=0.02),
    Sampling(2.0, top_p=0.99, top_k=40, min_p=0.05, seed=2**64 - 5),
    Sampling(1.0, top_p=1e-9),
    Sampling(1.0, min_p=1.0),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("size", [1, 7, 500])
def test_every_rule(rule, size):
    rng = np.random.default_rng(size)
    for spread in (0.0, 1.0, 8.0, 60.0):
        logits = (rng.standard_normal(size) * spread).astype(np.float32)
        ties = np.round(logits / 2).astype(np.float32)  # many equal ones, zeros of both signs among them
        for position in range(20):
            for row in (logits, ties):
                want = sampling.sample(row, rule, choice=position % 3, position=position)
                assert sample(row, rule, choice=position % 3, position=position) == want


def test_philox():
    for key0, key1, position in ((0, 0, 0), (1, 2, 3), (2**64 - 1, 2**63, 10**9)):
        assert _native.philox(key0, key1, position) == sampling.philox((key0, key1), (position, 0, 0, 0))[0]


def test_nan_ends_the_request_and_minus_infinity_is_never_drawn():
    logits = np.zeros(10, np.float32)
    logits[3] = np.nan
    with pytest.raises(RequestError, match="NaN logit at position 4"):
        sample(logits, Sampling(1.0), choice=0, position=4)
    logits[:] = -np.inf
    logits[[2, 5]] = 1
    drawn = {sample(logits, Sampling(1.0), choice=0, position=p) for p in range(50)}
    assert drawn == {2, 5}
