"""Delta rule, attention and selections of a window against the numpy reference, on every instruction set."""

import numpy as np
import pytest
from cpu.window_rows import f32, nan_filled, rows, same

from strata.arithmetic import attention, experts, recurrent
from strata.arithmetic.functions import constant_rsqrt, round_to
from strata.cpu import _native

pytestmark = [pytest.mark.usefixtures("isa"), pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")]


def inputs(count, dk, dv, seed=0):
    rng = np.random.default_rng(seed)
    q, k = (rng.standard_normal((count, dk)).astype(f32) / 8 for _ in range(2))
    v = rng.standard_normal((count, dv)).astype(f32)
    decay, beta = rng.random((2, count)).astype(f32)
    return rng.standard_normal((dk, dv)).astype(f32), q, k, v, decay, beta


def reference(state, q, k, v, decay, beta):
    out, after = recurrent.gated_delta_rule(
        state[None], q[:, None], k[:, None], v[:, None], decay[:, None], beta[:, None]
    )
    return out[:, 0], after[0]


@pytest.mark.parametrize(("dk", "dv"), [(1, 1), (5, 3), (48, 31), (64, 64), (128, 128), (100, 130)])
@pytest.mark.parametrize("count", [1, 5])
def test_delta_rule(dk, dv, count):
    state, *rest = inputs(count, dk, dv)
    want, after = reference(state, *rest)
    out, got = nan_filled(count, dv), nan_filled(dk, dv)
    _native.delta_rule(state, got, *rest, 0, 0, out)
    assert same(out, want)
    assert same(got, after)
    in_place = state.copy()
    _native.delta_rule(in_place, in_place, *rest, 0, 0, out)
    assert same(in_place, after)


@pytest.mark.parametrize(("replayed", "tentative"), [(0, 2), (3, 0), (2, 3), (1, 6), (0, 7), (7, 0)])
def test_delta_rule_replays_and_keeps_drafts_out(replayed, tentative):
    state, *rest = inputs(7, 40, 33, seed=1)
    want, _ = reference(state, *rest)
    _, after = reference(state, *(x[: 7 - tentative] for x in rest))
    out, got = nan_filled(7, 33), nan_filled(40, 33)
    _native.delta_rule(state, got, *rest, replayed, tentative, out)
    assert same(out[replayed:], want[replayed:])
    assert same(got, after)


def test_delta_rule_of_hard_states():
    _, *rest = inputs(3, 16, 17, seed=2)
    for name, state in rows(16 * 17):
        state = state.reshape(16, 17)
        want, after = reference(state, *rest)
        out, got = nan_filled(3, 17), nan_filled(16, 17)
        _native.delta_rule(state, got, *rest, 0, 0, out)
        assert same(out, want), name
        assert same(got, after), name


CACHES = [("f32", 0, np.float32), ("f16", 1, np.float16), ("bf16", 30, None)]


def kept(x, dtype):
    """Rows as a cache holds them: bytes."""
    if dtype is not None:
        return np.ascontiguousarray(x.astype(dtype)).view(np.uint8)
    return np.ascontiguousarray((x.view(np.uint32) >> 16).astype(np.uint16)).view(np.uint8)


@pytest.mark.parametrize(("kind", "number", "dtype"), CACHES)
@pytest.mark.parametrize(("heads", "dim", "count"), [(1, 8, 1), (3, 32, 3), (2, 40, 63), (12, 256, 64), (2, 130, 65),
                                                     (1, 32, 1024), (4, 64, 1025), (2, 32, 3100)])  # fmt: skip
def test_attention(kind, number, dtype, heads, dim, count):
    rng = np.random.default_rng(count)
    q = rng.standard_normal((heads, dim)).astype(f32) * f32(3)
    k, v = (round_to(rng.standard_normal((count, 1, dim)).astype(f32), kind) for _ in range(2))
    scale = constant_rsqrt(dim)
    out = nan_filled(heads, dim)
    _native.attend(q, kept(k[:, 0], dtype), kept(v[:, 0], dtype), scale, number, out)
    assert same(out, attention.attend(q, k, v, scale))


@pytest.mark.parametrize("name", [name for name, _ in rows(5)])
def test_attention_of_hard_keys(name):
    rng = np.random.default_rng(1)
    q = rng.standard_normal((2, 32)).astype(f32)
    v = rng.standard_normal((1200, 1, 32)).astype(f32)
    k = dict(rows(1200 * 32))[name].reshape(1200, 1, 32)
    for keys, values in ((k, v), (v, k)):
        out = nan_filled(2, 32)
        _native.attend(q, kept(keys[:, 0], f32), kept(values[:, 0], f32), 0.25, 0, out)
        assert same(out, attention.attend(q, keys, values, f32(0.25)))


@pytest.mark.parametrize("size", [2, 7, 64, 513])
def test_selections_take_the_lower_index_first(size):
    rng = np.random.default_rng(size)
    for values in (
        rng.standard_normal(size).astype(f32),
        rng.integers(0, 3, size).astype(f32),
        np.where(rng.random(size) < 0.5, f32(0), f32(-0.0)),
        np.where(rng.random(size) < 0.3, f32(np.nan), rng.integers(-2, 3, size).astype(f32)),
        np.where(rng.random(size) < 0.3, f32(-np.inf), rng.integers(-2, 3, size).astype(f32)),
    ):
        for count in {1, size // 2, size - 1}:
            chosen = np.zeros(count, np.uint32)
            _native.select(values, chosen, False)
            assert chosen.tolist() == attention.select_blocks(values, count).tolist()
            _native.select(values, chosen, True)
            assert chosen.tolist() == experts.top_k(values[None], count)[0].tolist()
