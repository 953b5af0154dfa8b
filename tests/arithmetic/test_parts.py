"""Recurrences, attention, indexer, router, hyper-connections and n-grams against plain double-precision formulas."""

import numpy as np
import pytest

from strata.arithmetic import attention, experts, hyper, ngram, norms, recurrent, rope
from strata.arithmetic.functions import constant_rsqrt
from strata.arithmetic.products import Matrix, Rows, product

f32 = np.float32


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(f32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize(("taps", "dilation"), [(4, 1), (4, 3), (2, 2)])
def test_causal_conv_is_a_convolution_and_does_not_see_chunks(taps, dilation):
    x, w = normal(23, 5), normal(5, taps, seed=1)
    reach = (taps - 1) * dilation
    padded = np.concatenate([np.zeros((reach, 5)), x]).astype(np.float64)
    want = sum(padded[i * dilation : i * dilation + 23] * w[:, i] for i in range(taps))
    whole, end = recurrent.causal_conv(np.zeros((reach, 5), f32), x, w, dilation)
    assert np.allclose(whole, want, atol=1e-5)
    tail, parts = np.zeros((reach, 5), f32), []
    for cut in np.split(x, [1, 2, 9, 16]):
        part, tail = recurrent.causal_conv(tail, cut, w, dilation)
        parts.append(part)
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert tail.tobytes() == end.tobytes()


def test_delta_rule_is_the_recurrence_and_leaves_the_state_it_got():
    heads, dk, dv, count = 3, 12, 7, 9
    q, k, v = normal(count, heads, dk), normal(count, heads, dk, seed=1), normal(count, heads, dv, seed=2)
    k = norms.l2_norm(k)
    decay, beta = 1 / (1 + np.exp(normal(count, heads, seed=3))), 1 / (1 + np.exp(normal(count, heads, seed=4)))
    start = normal(heads, dk, dv, seed=5)
    kept = start.copy()
    out, end = recurrent.gated_delta_rule(start, q, k, v, decay.astype(f32), beta.astype(f32))
    state = start.astype(np.float64)
    for t in range(count):
        state = state * decay[t][:, None, None]
        delta = (v[t] - np.einsum("hkv,hk->hv", state, k[t])) * beta[t][:, None]
        state = state + k[t][:, :, None] * delta[:, None, :]
        assert np.allclose(out[t], np.einsum("hkv,hk->hv", state, q[t]), atol=1e-5)
    assert np.allclose(end, state, atol=1e-5)
    assert np.array_equal(start, kept)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 1023, 1024, 1025, 2500])
def test_attention_is_softmax_attention(count):
    q, k, v = normal(6, 16), normal(count, 2, 16, seed=1), normal(count, 2, 16, seed=2)
    got = attention.attend(q, k, v, constant_rsqrt(16))
    for head in range(6):
        group = head // 3
        weights = softmax((k[:, group].astype(np.float64) @ q[head]) / 4)
        assert np.allclose(got[head], weights @ v[:, group], atol=2e-6)


def test_attention_survives_scores_far_apart():
    k = np.zeros((130, 1, 4), f32)
    k[100] = 200
    v = normal(130, 1, 4)
    got = attention.attend(np.full((1, 4), 5, f32), k, v, f32(1))
    assert got[0].tobytes() == v[100, 0].tobytes()


def test_selection_takes_the_best_blocks_and_the_lower_of_equals():
    scores = np.array([0, 3, 1, 3, -0.0, 2, 0], f32)
    assert attention.select_blocks(scores, 2).tolist() == [1, 3]
    assert attention.select_blocks(scores, 5).tolist() == [0, 1, 2, 3, 5]
    assert attention.select_blocks(scores, 9).tolist() == list(range(7))
    assert attention.selected_positions(np.array([0, 2]), 4, 14).tolist() == [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14]
    assert attention.selected_positions(np.array([1]), 4, 15).tolist() == [4, 5, 6, 7]


def test_index_scores_are_relu_dots_and_pooling_is_a_mean():
    q, keys = normal(3, 8), normal(5, 8, seed=1)
    want = np.maximum(keys.astype(np.float64) @ q.T, 0).sum(1)
    assert np.allclose(attention.index_scores(q, keys), want, atol=1e-5)
    raw = normal(5, 4, 8, seed=2)
    assert np.allclose(attention.pool_keys(raw), raw.mean(1), atol=1e-6)


def test_router_renormalizes_and_breaks_ties_by_index():
    logits = np.array([[1, 5, 5, -2, 0.5], [0, 0, 0, 0, 0]], f32)
    ids, weights = experts.route(logits, 3)
    assert ids.tolist() == [[1, 2, 0], [0, 1, 2]]
    full = softmax(logits.astype(np.float64))[0, [1, 2, 0]]
    assert np.allclose(weights[0], full / full.sum(), atol=1e-6)
    assert np.allclose(weights[1], 1 / 3)


def test_experts_are_mixed_in_rank_order_whoever_shares_them():
    rows = normal(40, 64)
    mats = [
        [
            Matrix.of_floats(normal(*shape, seed=10 * e + i) / 8)
            for i, shape in enumerate([(32, 64), (32, 64), (64, 32)])
        ]
        for e in range(6)
    ]
    logits = normal(40, 6, seed=3)

    def run(part):
        ids, weights = experts.route(logits[part], 2)
        return experts.mix_experts(
            Rows(rows[part]), ids, weights, lambda e, r: experts.feed_forward(r, *mats[e], product), 64
        )

    together = run(slice(None))
    alone = np.concatenate([run(slice(i, i + 1)) for i in range(40)])
    assert together.tobytes() == alone.tobytes()
    ids, weights = experts.route(logits, 2)
    for r in range(40):
        want = 0
        for rank in range(2):
            gate, up, down = (m.floats.astype(np.float64) for m in mats[ids[r, rank]])
            g = gate @ rows[r]
            want = want + weights[r, rank] * (down @ (g / (1 + np.exp(-g)) * (up @ rows[r])))
        assert np.allclose(together[r], want, atol=1e-5)


def test_hyper_connection_is_the_published_formula():
    s, d, rank = 4, 24, 8
    x, gamma = normal(5, s, d), normal(s * d, seed=1)
    down, up, inject = normal(rank, s * d, seed=2), normal(s * d, rank, seed=3), normal(s, s * d, seed=4)
    site = hyper.HyperConnection(gamma, *(Matrix.of_floats(m) for m in (down, up, inject)))
    mixed, weights = hyper.mix_streams(x, site, 1e-6, product)
    n = (x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6)).reshape(5, -1) * gamma
    low = n @ down.T / s
    mask = 1 / (1 + np.exp(-((low / (1 + np.exp(-low))) @ up.T)))
    assert np.allclose(mixed, (mask * n).reshape(5, s, d).mean(1), atol=1e-5)
    assert np.allclose(weights, 2 / (1 + np.exp(-(n @ inject.T) / s)), atol=1e-5)
    out = normal(5, d, seed=6)
    assert np.allclose(hyper.inject(x, out, weights), x + weights[:, :, None] * out[:, None, :], atol=1e-6)


def test_rope_rotates_and_keeps_the_rest():
    table = rope.RopeTable(10000.0, 8)
    x = normal(3, 2, 12)
    cos, sin = table.at(np.array([0, 7, 1000]))
    y = rope.apply_rope(x, cos, sin)
    assert np.array_equal(y[..., 8:], x[..., 8:])
    assert np.array_equal(y[0], x[0])
    z = (x[..., :4] + 1j * x[..., 4:8]) * np.exp(
        1j * np.array([0, 7, 1000])[:, None, None] / 10000.0 ** (np.arange(4) / 4)
    )
    assert np.allclose(y[..., :8], np.concatenate([z.real, z.imag], -1), atol=1e-4)


def ngram_ids_by_hand(tokens, p, multipliers, offsets, sizes, heads, eos):
    """One position, token by token, as the published model's description has it."""
    out = []
    for order in range(2, len(multipliers) + 1):
        mixed = tokens[p] * multipliers[0]
        for shift in range(1, order):
            window = tokens[max(0, p - shift) : p]
            before = eos if p - shift < 0 or eos in window else tokens[p - shift]
            mixed ^= before * multipliers[shift]
        for head in range(heads):
            i = (order - 2) * heads + head
            out.append(mixed % sizes[i] + offsets[i])
    return out


def test_ngram_rows_reset_at_eos_and_do_not_see_chunks():
    rng, eos, heads = np.random.default_rng(0), 9, 3
    tokens = rng.integers(0, 12, 60).tolist()
    multipliers = np.array([12345678901, 99999999977, 31415926535], np.int64)
    sizes = np.array([101, 103, 107, 109, 113, 127], np.int64)
    offsets = np.cumsum(sizes) - sizes
    want = [
        ngram_ids_by_hand(tokens, p, multipliers.tolist(), offsets.tolist(), sizes.tolist(), heads, eos)
        for p in range(60)
    ]
    tail, got = np.full(2, eos, np.int64), []
    for cut in np.split(np.array(tokens), [1, 3, 4, 30]):
        rows, tail = ngram.ngram_rows(tail, cut, multipliers, offsets, sizes, heads, eos)
        got += rows.tolist()
    assert got == want


def test_ngram_gate_is_the_signed_root():
    s, d = 2, 16
    key, streams, value = normal(6, s * d), normal(6, s, d, seed=1), normal(6, d, seed=2)
    key[5] = 0
    gammas = normal(2, s * d, seed=3)
    got = ngram.ngram_gate(key, streams, value, gammas[0], gammas[1], 1e-6)

    def rms(x, gamma):
        x = x.reshape(6, s, d).astype(np.float64)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * gamma.reshape(s, d)

    g = (rms(key, gammas[0]) * rms(streams, gammas[1])).sum(-1) / 4
    gate = np.sqrt(np.maximum(np.abs(g), 1e-6)) * np.sign(g)
    assert np.allclose(got, (1 / (1 + np.exp(-gate)))[..., None] * value[:, None], atol=1e-5)
    assert np.array_equal(got[5], np.repeat(value[5:6] * f32(0.5), s, 0))
