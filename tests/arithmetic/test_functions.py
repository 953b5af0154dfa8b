"""exp, log1p, sigmoid, softplus, roundings and the rope table, against doubles; special values by definition."""

import decimal

import numpy as np
import pytest
import torch

from strata.arithmetic import functions, rope

ULP = 2.0**-23


def relative(got, want):
    return np.max(np.abs(got.astype(np.float64) - want) / want)


def test_exp_is_within_two_ulp_of_the_double():
    x = np.concatenate([np.linspace(-87, 88, 300_001), np.linspace(-1e-3, 1e-3, 1001)]).astype(np.float32)
    assert relative(functions.exp(x), np.exp(x.astype(np.float64))) < 2 * ULP


def test_exp_at_its_edges():
    x = np.array([0.0, -0.0, -np.inf, np.nextafter(np.float32(-87), np.float32(-88)), 1e30, np.inf], np.float32)
    got = functions.exp(x)
    assert got[:2].tolist() == [1.0, 1.0]
    assert got[2:4].tolist() == [0.0, 0.0]
    assert np.isfinite(got[4:]).all()
    assert got[4] == got[5]
    assert np.isnan(functions.exp(np.array([np.nan], np.float32)))[0]


def test_log1p_and_softplus_are_close_to_the_double():
    y = np.exp(np.linspace(-80, 20, 200_001)).astype(np.float32)
    assert relative(functions.log1p(y), np.log1p(y.astype(np.float64))) < 4 * ULP
    x = np.linspace(-86, 60, 200_001).astype(np.float32)
    assert relative(functions.softplus(x), np.log1p(np.exp(x.astype(np.float64)))) < 4 * ULP
    assert functions.softplus(np.array([20.5], np.float32))[0] == np.float32(20.5)


def test_sigmoid_and_silu():
    x = np.linspace(-86, 86, 200_001).astype(np.float32)
    want = 1 / (1 + np.exp(-x.astype(np.float64)))
    assert relative(functions.sigmoid(x), want) < 3 * ULP
    assert functions.sigmoid(np.array([0, -1000, 1000], np.float32)).tolist() == [0.5, 0.0, 1.0]
    assert np.abs(functions.silu(x) - x * want).max() < 1e-5


def test_relu_never_gives_minus_zero():
    got = functions.relu(np.array([-0.0, -1, 2, np.nan], np.float32))
    assert got.tolist() == [0, 0, 2, 0]
    assert not np.signbit(got).any()


@pytest.mark.parametrize("kind", ["bf16", "f16"])
def test_round_to_is_nearest_even(kind):
    rng = np.random.default_rng(3)
    x = rng.standard_normal(50_000).astype(np.float32) * np.exp(rng.uniform(-30, 30, 50_000)).astype(np.float32)
    ties = np.array([1.00390625, 1.01171875, 65520.0, -0.0, np.inf, -np.inf], np.float32)
    x = np.concatenate([x, ties])
    dtype = torch.bfloat16 if kind == "bf16" else torch.float16
    want = torch.from_numpy(x).to(dtype).float().numpy()
    assert np.array_equal(functions.round_to(x, kind), want)
    assert np.isnan(functions.round_to(np.array([np.nan], np.float32), kind))[0]


def test_rint_rounds_ties_to_even():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.0, -127.49], np.float32)
    assert np.array_equal(functions.rint(x), np.rint(x))


def test_sines_are_within_an_ulp_of_the_double_over_a_million_radians():
    angle = np.linspace(0, 1_000_000, 500_001)
    sine, cosine = rope.sin_cos(angle)
    assert np.abs(sine - np.sin(angle)).max() < 3e-16
    assert np.abs(cosine - np.cos(angle)).max() < 3e-16


def test_rope_table_rows_do_not_depend_on_how_it_grew():
    whole, grown = rope.RopeTable(1e7, 64), rope.RopeTable(1e7, 64)
    for end in (3, 1024, 1025, 5000):
        grown.at(np.arange(end))
    cos, sin = whole.at(np.arange(5000))
    again_cos, again_sin = grown.at(np.arange(5000))
    assert np.array_equal(cos, again_cos)
    assert np.array_equal(sin, again_sin)
    frequency = float(np.float32(float(decimal.Decimal(1e7) ** (decimal.Decimal(-2 * 5) / 64))))
    angle = np.float32(4321) * np.float32(frequency)
    assert cos[4321, 5] == np.float32(np.cos(np.float64(angle)))
