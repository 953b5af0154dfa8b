"""The C++ products with F32, F16 and BF16 weights against the numpy reference, bit for bit."""

import numpy as np
import pytest
from cpu.native_products import native_product

from strata.arithmetic import Matrix, Rows, products

f32 = np.float32
FORMATS = ("F32", "F16", "BF16")
pytestmark = pytest.mark.usefixtures("isa")


def bits_of(name, values):
    """fp32 values rounded to a format, as the bytes of a file."""
    halves = {"F32": values, "F16": values.astype(np.float16), "BF16": (values.view(np.uint32) >> 16).astype(np.uint16)}
    return np.ascontiguousarray(halves[name]).view(np.uint8).reshape(-1)


def weights(name, n, k, seed=0):
    """A matrix of ordinary values, zeros of both signs, subnormals of the format and tiny ones."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, k)).astype(f32)
    odd = np.array([0, -0.0, 1e-40, -3e-39, 6e-8, -2e-7, 6e-5], f32)
    places = rng.random((n, k)) < 0.1
    values[places] = rng.choice(odd, int(places.sum()))
    values[n // 2] *= f32(1e-20)
    with np.errstate(over="ignore"):
        return Matrix(name, bits_of(name, values), n, k)


def rows_of(count, k, seed=1):
    """Rows of several sizes: one of zeros, one of subnormals, one that is huge."""
    x = np.random.default_rng(seed).standard_normal((count, k)).astype(f32)
    if count > 3:
        x[1], x[2] = f32(-0.0), x[2] * f32(1e-40)
        x[3] *= f32(1e15)
    return x


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("k", [1, 15, 16, 17, 32, 33, 96, 127, 128, 129, 200, 256, 640, 1000, 2560])
def test_any_number_of_columns(name, k):
    w = weights(name, 19, k, seed=k)
    x = rows_of(5, k, seed=k)
    want = products.product(Rows(x), w)
    assert native_product(w, x).tobytes() == want.tobytes()
    assert native_product(w, x[4:]).tobytes() == want[4:].tobytes()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("n", [1, 3, 4, 5, 16, 31, 48])
def test_any_number_of_weight_rows(name, n):
    w = weights(name, n, 300, seed=n)
    x = rows_of(9, 300)
    assert native_product(w, x).tobytes() == products.product(Rows(x), w).tobytes()


@pytest.mark.parametrize("name", FORMATS)
def test_every_row_count(name):
    w = weights(name, 37, 416)
    x = rows_of(64, 416)
    want = products.product(Rows(x), w)
    for count in [*range(1, 10), 64]:
        assert native_product(w, x[:count]).tobytes() == want[:count].tobytes(), count


def test_more_rows_than_one_pass_keeps():
    w = weights("BF16", 20, 5000)
    x = rows_of(70, 5000)
    assert native_product(w, x).tobytes() == products.product(Rows(x), w).tobytes()


@pytest.mark.parametrize("name", FORMATS)
def test_chosen_rows_and_split_tiles(name):
    w = weights(name, 70, 130)
    x = rows_of(12, 130)
    index = np.random.default_rng(0).integers(0, 12, 17).astype(np.uint32)
    want = products.product(Rows(x), w)[index]
    assert native_product(w, x, index=index, tiles=[(3, 5), (0, 1), (1, 3)]).tobytes() == want.tobytes()
    part = native_product(w, x, index=index, tiles=[(1, 2)])
    assert np.isnan(np.delete(part, slice(16, 32), axis=1)).all()
    assert part[:, 16:32].tobytes() == want[:, 16:32].tobytes()


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_values_stay_in_their_row_and_column(name):
    values = np.random.default_rng(3).standard_normal((18, 150)).astype(f32)
    values[2, 140], values[17, 7] = np.inf, np.nan
    w = Matrix(name, bits_of(name, values), 18, 150)
    x = rows_of(6, 150)
    x[0, 149], x[5, 3] = np.nan, -np.inf
    with np.errstate(all="ignore"):
        want = products.product(Rows(x), w)
    got = native_product(w, x)
    holes = np.isnan(want)
    assert np.array_equal(np.isnan(got), holes)
    assert got[~holes].tobytes() == want[~holes].tobytes()
    assert not holes[1:5, 3:17].any()


def test_bytes_at_an_odd_address():
    w = weights("F32", 17, 70)
    memory = np.empty(len(w.raw) + 1, np.uint8)
    memory[1:] = w.raw
    moved = Matrix("F32", memory[1:], 17, 70)
    x = rows_of(3, 70)
    assert native_product(moved, x).tobytes() == products.product(Rows(x), w).tobytes()
