"""The experts of one layer on their own against the numpy reference, bit for bit."""

import numpy as np
import pytest
from arithmetic_matrices import random_matrix

from strata import cpu
from strata.arithmetic import Rows, experts, products
from strata.errors import UsageError

COUNT, HIDDEN, WIDTH = 7, 256, 96
F32 = np.float32


@pytest.fixture(scope="module")
def parts():
    """gate, up (W, D) and down (D, W) of every expert."""
    made = [
        (random_matrix("Q4_K", WIDTH, HIDDEN, 3 * e), random_matrix("Q8_0", WIDTH, HIDDEN, 3 * e + 1),
         random_matrix("IQ4_NL", HIDDEN, WIDTH, 3 * e + 2)) for e in range(COUNT)
    ]  # fmt: skip
    return tuple(zip(*made, strict=True))


def reference(parts, x, ids, weights):
    gates, ups, downs = parts

    def expert(e, rows):
        return experts.feed_forward(rows, gates[e], ups[e], downs[e], products.product)

    return experts.mix_experts(Rows(x), ids, weights, expert, HIDDEN)


@pytest.mark.parametrize("repack", ["on", "off"])
@pytest.mark.parametrize("threads", [1, 3])
def test_rows_that_share_experts_or_do_not(parts, threads, repack, monkeypatch):
    monkeypatch.setenv("STRATA_REPACK", repack)
    layer = cpu.expert_layer(*parts, threads)
    rng = np.random.default_rng(0)
    for rows, used in [(1, 1), (1, 4), (5, 3), (30, 2), (0, 2)]:
        x = rng.standard_normal((rows, HIDDEN)).astype(F32)
        ids = np.array([rng.permutation(COUNT)[:used] for _ in range(rows)], np.int64).reshape(rows, used)
        weights = rng.random((rows, used)).astype(F32)
        assert layer(x, ids, weights).tobytes() == reference(parts, x, ids, weights).tobytes(), (rows, used)


def test_what_does_not_fit_is_said(parts):
    gates, ups, downs = parts
    with pytest.raises(UsageError, match=r"matrix is \(256, 96\); \(96, 256\) is needed"):
        cpu.expert_layer(gates, downs, downs, 1)
    layer = cpu.expert_layer(gates, ups, downs, 1)
    x, one = np.zeros((1, HIDDEN), F32), np.ones((1, 1), F32)
    for wrong in (-1, COUNT):
        with pytest.raises(UsageError, match="the layer has 7 experts"):
            layer(x, np.array([[wrong]]), one)
    with pytest.raises(UsageError, match="rows have 255 values; 256 are needed"):
        layer(x[:, 1:], np.array([[0]]), one)
    with pytest.raises(UsageError, match="do not fit x"):
        layer(x, np.array([[0, 1]]), one)
