"""Quantized and float products: against a literal loop (bits), and against double precision on dequantized weights."""

import numpy as np
import pytest
from arithmetic_loops import lane_loop, tree_loop
from arithmetic_matrices import random_matrix

from strata import formats
from strata.arithmetic.products import Matrix, QuantizedRows, Rows, float_product, product, quantize_rows

f32 = np.float32
QUANTIZED = [name for name, row in formats.FORMATS.items() if not row.is_float]


def product_loop(rows: QuantizedRows, name, raw, n, k):
    """docs/arithmetic.md, section 3, one scalar at a time."""
    parts, group = formats.unpack(name, raw, n, k), formats.FORMATS[name].group
    out = np.empty((len(rows.q), n), f32)

    def scale(value):
        return f32(0) if abs(value) < 2.0**-60 else f32(value)

    for r, row in enumerate(rows.q.reshape(len(rows.q), -1).astype(int)):
        for i in range(n):
            segments = []
            for first in range(0, k // 32, 4):
                p = f32(0)
                for b in range(first, min(first + 4, k // 32)):
                    d_a = rows.scale[r, b]
                    for start in range(32 * b, 32 * b + 32, group):
                        isum = int(
                            np.dot(parts.values[i, start : start + group].astype(int), row[start : start + group])
                        )
                        t = f32(f32(isum) * f32(scale(parts.scales[i, start // group]) * d_a))
                        if parts.minimums is not None:
                            imin = sum(
                                int(parts.minimums[i, 2 * b + h]) * int(row[32 * b + 16 * h :][:16].sum())
                                for h in (0, 1)
                            )
                            t = f32(t - f32(f32(imin) * f32(scale(parts.min_scales[i, b]) * d_a)))
                        p = f32(p + t)
                segments.append(p)
            out[r, i] = tree_loop(segments)
    return out


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_product_is_the_written_loop(name):
    n, k = 3, formats.FORMATS[name].block * (3 if formats.FORMATS[name].block >= 64 else 7)
    w = random_matrix(name, n, k)
    x = np.random.default_rng(1).standard_normal((2, k)).astype(f32)
    x[1, :40] = 0
    got = product(Rows(x), w)
    assert got.tobytes() == product_loop(quantize_rows(x), name, w.raw, n, k).tobytes()


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_product_is_close_to_the_real_one(name):
    block = formats.FORMATS[name].block
    w = random_matrix(name, 40, block * max(2, 512 // block), seed=5)
    x = np.random.default_rng(2).standard_normal((4, w.k)).astype(f32)
    want = x.astype(np.float64) @ w.floats.astype(np.float64).T
    error = np.sqrt(np.mean((product(Rows(x), w) - want) ** 2) / np.mean(want**2))
    assert error < 0.02


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("k", [1, 31, 128, 200, 513])
def test_float_product_is_the_written_loop(name, k):
    rng = np.random.default_rng(k)
    raw = rng.standard_normal((5, k)).astype(f32)
    data = {
        "F32": raw.view(np.uint8),
        "F16": raw.astype(np.float16).view(np.uint8),
        "BF16": np.ascontiguousarray(raw.view(np.uint16)[:, 1::2]).view(np.uint8),
    }[name]
    w = Matrix(name, np.ascontiguousarray(data).reshape(-1), 5, k)
    x = rng.standard_normal((3, k)).astype(f32)
    got = product(Rows(x), w)
    for r in range(3):
        for i in range(5):
            assert got[r, i].tobytes() == lane_loop(x[r] * w.floats[i]).tobytes()
    assert np.allclose(got, x @ w.floats.T, atol=1e-4)


def test_rows_do_not_depend_on_each_other():
    w = random_matrix("Q4_K", 65, 768)
    x = np.random.default_rng(4).standard_normal((33, 768)).astype(f32)
    together = product(Rows(x), w)
    alone = np.concatenate([product(Rows(x[i : i + 1]), w) for i in range(33)])
    assert together.tobytes() == alone.tobytes()
    dense = np.random.default_rng(5).standard_normal((9, 768)).astype(f32)
    assert float_product(x, dense).tobytes() == np.concatenate([float_product(r[None], dense) for r in x]).tobytes()


def test_quantize_rows_at_the_edges():
    x = np.zeros((7, 64), f32)
    x[1, 0] = 2.0**-61
    x[2, 0] = 2.0**-60
    x[3, 5] = np.inf
    x[4, 5] = np.nan
    x[5, :32] = np.linspace(-3, 3, 32)
    x[6, 0], x[6, 1] = -0.0, 3e38
    rows = quantize_rows(x)
    assert np.abs(rows.q).max() <= 127
    assert rows.scale[:2].max() == 0
    assert not rows.q[:2].any()
    assert rows.q[2, 0, 0] == 127
    assert np.isnan(rows.scale[3:5, 0]).all()
    assert not rows.q[3:5].any()
    assert (rows.scale[3:5, 1] == 0).all()
    assert rows.q[5, 0, 0] == -127
    assert rows.q[6, 0, 1] == 127


def test_a_damaged_row_gives_nan_and_only_there():
    w = random_matrix("Q8_0", 4, 64)
    x = np.ones((3, 64), f32)
    x[1, 7] = np.nan
    got = product(Rows(x), w)
    assert np.isnan(got[1]).all()
    assert np.isfinite(got[[0, 2]]).all()


def test_tiny_weight_scales_count_as_zero_in_products():
    values = np.array([2.0**-24], np.float16)
    raw = np.concatenate([values.view(np.uint8), np.full(32, 127, np.uint8)])
    normal = Matrix("Q8_0", raw, 1, 32)
    x = np.ones((1, 32), f32)
    assert product(Rows(x), normal)[0, 0] > 0
    parts = normal.integers
    assert parts.scales[0, 0] == f32(2.0**-24)


def test_embedding_rows_are_the_dequantized_ones():
    w = random_matrix("Q6_K", 9, 512)
    ids = np.array([8, 0, 3, 3])
    assert w.rows(ids).tobytes() == w.floats[ids].tobytes()
