"""The C++ ops against the numpy reference, bit for bit, into memory filled with NaN."""

import numpy as np
import pytest
from arithmetic_matrices import random_matrix

from strata import cpu, formats
from strata.arithmetic import Rows, products, recurrent

QUANTIZED = [name for name, row in formats.FORMATS.items() if not row.is_float]
f32 = np.float32


@pytest.fixture(autouse=True)
def nan_filled(monkeypatch):
    """Every new fp32 output starts as NaN, so that an element left out shows."""
    monkeypatch.setattr(cpu, "new_output", lambda shape: np.full(shape, np.nan, f32))


@pytest.mark.parametrize("name", QUANTIZED)
@pytest.mark.parametrize("rows", [1, 3, 9])
def test_quantized_product(name, rows):
    block = formats.FORMATS[name].block
    w = random_matrix(name, 37, block * (3 if block >= 64 else 7))
    x = np.random.default_rng(rows).standard_normal((rows, w.k)).astype(f32)
    x[0, :50] = 0
    if rows > 1:
        x[1] *= f32(1e-30)
    assert cpu.product(Rows(x), w).tobytes() == products.product(Rows(x), w).tobytes()


def test_quantized_product_of_many_rows_and_long_rows():
    w = random_matrix("Q5_K", 5, 10240)
    x = np.random.default_rng(0).standard_normal((513, 10240)).astype(f32)
    assert cpu.product(Rows(x), w).tobytes() == products.product(Rows(x), w).tobytes()


def test_damaged_rows_give_nan_alone():
    w = random_matrix("Q6_K", 6, 256)
    x = np.ones((3, 256), f32)
    x[1, 3] = np.inf
    got = cpu.product(Rows(x), w)
    assert np.isnan(got[1]).all()
    assert np.isfinite(got[[0, 2]]).all()


@pytest.mark.parametrize(
    ("tokens", "heads", "dk", "dv"), [(1, 2, 64, 64), (5, 3, 48, 31), (64, 1, 128, 128), (2, 2, 1, 5)]
)
def test_gated_delta_rule(tokens, heads, dk, dv):
    rng = np.random.default_rng(tokens)
    q, k = (rng.standard_normal((tokens, heads, dk)).astype(f32) for _ in range(2))
    v = rng.standard_normal((tokens, heads, dv)).astype(f32)
    decay, beta = (rng.random((tokens, heads)).astype(f32) for _ in range(2))
    state = rng.standard_normal((heads, dk, dv)).astype(f32)
    kept = state.copy()
    out, after = cpu.gated_delta_rule(state, q, k / 8, v, decay, beta)
    want_out, want_after = recurrent.gated_delta_rule(state, q, k / 8, v, decay, beta)
    assert out.tobytes() == want_out.tobytes()
    assert after.tobytes() == want_after.tobytes()
    assert np.array_equal(state, kept)


def test_shapes_that_do_not_fit_are_refused_with_the_numbers():
    w = random_matrix("Q8_0", 4, 64)
    with pytest.raises(ValueError, match=r"x's K is 96; 64 is needed"):
        cpu.product(Rows(np.zeros((1, 96), f32)), w)
