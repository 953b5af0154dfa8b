"""The ops of a window that are no products against the numpy reference, bit for bit, on every instruction set."""

import numpy as np
import pytest
from cpu.window_rows import SIZES, f32, nan_filled, rows, same

from strata.arithmetic import functions, norms, recurrent
from strata.arithmetic.attention import pool_keys
from strata.arithmetic.experts import add_shared
from strata.arithmetic.hyper import inject
from strata.arithmetic.ngram import GATE_FLOOR
from strata.arithmetic.order import lane_sum, ordered_sum
from strata.arithmetic.rope import apply_rope
from strata.cpu import _native

NONE = np.zeros(0, f32)
pytestmark = [pytest.mark.usefixtures("isa"), pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")]


def elementwise(name, x, b=NONE, c=NONE, number=0.0):
    y = nan_filled(len(x))
    _native.elementwise(name, x, b, c, number, y)
    return y


def pairs(size):
    """Each hard row with an ordinary one of the same size."""
    ordinary = np.random.default_rng(9).standard_normal(size).astype(f32)
    return [(name, x, ordinary) for name, x in rows(size)]


@pytest.mark.parametrize("size", SIZES)
def test_activations(size):
    four = f32(4)
    for name, x, other in pairs(size):
        assert same(elementwise("sigmoid", x), functions.sigmoid(x)), name
        assert same(elementwise("silu_share", x, number=4.0), functions.silu(x / four)), name
        assert same(elementwise("inject_weights", x, number=4.0), f32(2) * functions.sigmoid(x / four)), name
        assert same(elementwise("silu_times", x, other), functions.silu(x) * other), name
        assert same(elementwise("sigmoid_times", other, x), other * functions.sigmoid(x)), name
        assert same(elementwise("exp_minus", x, number=0.75), functions.exp(x - f32(0.75))), name
        decay = functions.exp(other * functions.softplus(x + other))
        assert same(elementwise("decay", x, other, other), decay), name
        assert same(elementwise("add_ngram", x, other, x), x + (other + x)), name


def test_exp_over_its_whole_range():
    x = np.concatenate([np.linspace(-100, 100, 40001), [-87.0, 88.0, 0.0, -0.0, -87.00001, 88.00001]]).astype(f32)
    assert same(elementwise("exp_minus", x, number=0.0), functions.exp(x))
    assert elementwise("exp_minus", np.zeros(3, f32), number=0.0).tolist() == [1, 1, 1]


def test_log1p_over_its_whole_range():
    x = np.linspace(-90, 25, 40001).astype(f32)
    one = np.ones_like(x)
    assert same(elementwise("decay", x, np.zeros_like(x), -one), functions.exp(-one * functions.softplus(x)))


@pytest.mark.parametrize("size", SIZES)
def test_norms(size):
    for name, x, gamma in pairs(size):
        y = nan_filled(size)
        _native.rms_norm(x, gamma, y, size, 1e-6)
        assert same(y, norms.rms_norm(x, gamma, 1e-6)), name
        assert same(elementwise("l2_norm", x, number=1.0), norms.l2_norm(x)), name
        scale = functions.constant_rsqrt(128)
        assert same(elementwise("l2_norm", x, number=float(scale)), norms.l2_norm(x) * scale), name
        for activation in ("silu", "sigmoid"):
            _native.gated_norm(gamma, x, gamma, y, 1e-6, activation == "silu")
            assert same(y, norms.gated_rms_norm(gamma, x, gamma, 1e-6, activation)), name


@pytest.mark.parametrize(("groups", "group"), [(4, 33), (3, 128), (4, 2560)])
def test_rms_norm_over_groups(groups, group):
    for name, x, gamma in pairs(groups * group):
        y = nan_filled(groups * group)
        _native.rms_norm(x, gamma, y, group, 1e-5)
        assert same(y, norms.rms_norm(x, gamma, 1e-5, group=group)), name


@pytest.mark.parametrize("size", SIZES)
def test_hyper_connections(size):
    rng = np.random.default_rng(size)
    for name, x in rows(4 * size):
        flat, logits = x.reshape(4, size), (rng.standard_normal((4, size)) * 5).astype(f32)
        y = nan_filled(size)
        _native.mix_streams(logits, flat, y)
        assert same(y, ordered_sum(functions.sigmoid(logits) * flat, 0) / f32(4)), name
        weights, output = rng.standard_normal(4).astype(f32), rng.standard_normal(size).astype(f32)
        streams = flat.copy()
        _native.inject(streams, output, weights)
        assert same(streams, inject(flat[None], output[None], weights[None])[0]), name


@pytest.mark.parametrize("taps", [1, 2, 4])
@pytest.mark.parametrize("size", SIZES)
def test_convolution(size, taps):
    rng = np.random.default_rng(size)
    weight = rng.standard_normal((size, taps)).astype(f32)
    for name, x in rows(taps * size):
        history = x.reshape(taps, size)
        y = nan_filled(size)
        _native.conv_silu(history, np.ascontiguousarray(weight.T), y)
        assert same(y, functions.silu(recurrent.causal_conv(history[:-1], history[-1:], weight)[0][0])), name


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("used", [1, 3, 10])
def test_experts_are_summed_in_rank_order(size, used):
    rng = np.random.default_rng(used)
    weights, shared = rng.random(used).astype(f32), rng.standard_normal(size).astype(f32)
    for name, x in rows(used * size):
        parts, gate, y = x.reshape(used, size), f32(-0.3), nan_filled(size)
        _native.mix_experts(parts, weights, shared, gate, y)
        assert same(y, add_shared(ordered_sum(weights[:, None] * parts, 0), shared, gate)), name


@pytest.mark.parametrize("half", [1, 3, 16, 32, 33])
def test_rope(half):
    rng = np.random.default_rng(half)
    cos, sin = rng.standard_normal((2, half)).astype(f32)
    for name, x in rows(2 * half + 5):
        assert same(elementwise("rope", x, cos, sin), apply_rope(x[None, None], cos[None], sin[None])[0, 0]), name


@pytest.mark.parametrize(("kind", "number"), [("f32", 0), ("f16", 1), ("bf16", 30)])
def test_rounding_to_the_caches_type(kind, number):
    bits = np.random.default_rng(0).integers(0, 2**32, 70000, dtype=np.uint32)
    edges = np.array([65519.0, 65520.0, 6e-8, 2.9e-8, 2.98e-8, 6.1e-5, -0.0, 3.4e38, np.inf, -np.inf, np.nan], f32)
    x = np.concatenate([bits.view(f32), edges, *(x for _, x in rows(33))])
    y = nan_filled(len(x))
    _native.round_row(x, y, number)
    assert same(y, functions.round_to(x, kind))


@pytest.mark.parametrize("size", SIZES)
def test_pooled_keys(size):
    for ratio in (1, 3, 4):
        for name, x in rows(ratio * size):
            y = nan_filled(size)
            _native.pool_keys(x.reshape(ratio, size), y)
            assert same(y, pool_keys(x.reshape(1, ratio, size))[0]), name


def test_ngram_gate():
    value = np.random.default_rng(0).standard_normal(50).astype(f32)
    for g in (0.0, -0.0, 1e-9, -1e-9, 1e-6, 0.3, -7.0, 1e30, np.inf, -np.inf, np.nan):
        g = f32(g)
        root = np.sqrt(np.maximum(np.abs(g), GATE_FLOOR))
        signed = root if g > 0 else -root if g < 0 else f32(0)
        want = functions.sigmoid(np.full(1, signed, f32)) * value
        assert same(elementwise("ngram_gate", value, number=g), want)


def test_a_norm_of_zero_values_is_the_lane_sum_of_padding():
    x = np.full(130, f32(-0.0))
    assert same(elementwise("l2_norm", x, number=1.0), x * (f32(1) / np.sqrt(lane_sum(x * x) + f32(1e-6))))
