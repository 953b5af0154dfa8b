"""Rows that are hard on arithmetic, and the comparison of bits, for the tests of the window's ops."""

import numpy as np

f32 = np.float32
SIZES = (1, 5, 16, 31, 33, 96, 128, 130, 257, 2560)


def rows(size, seed=0):
    """Named rows of `size` values: normal ones, zeros of both signs, denormals, huge ones, infinities, NaN."""
    rng = np.random.default_rng(seed)
    normal = (rng.standard_normal(size) * 3).astype(f32)
    yield "normal", normal
    yield "zeros", np.where(np.arange(size) % 2, f32(0), f32(-0.0)).astype(f32)
    yield "denormal", (normal * f32(1e-41)).astype(f32)
    yield "small", (normal * f32(1e-20)).astype(f32)
    yield "large", (normal * f32(40)).astype(f32)
    huge = normal.copy()
    huge[size // 2] = 3e38
    yield "huge", huge
    for name, value in (("infinite", np.inf), ("negative infinite", -np.inf), ("nan", np.nan)):
        odd = normal.copy()
        odd[size // 3] = value
        yield name, odd


def same(got, want):
    """Whether two arrays have the same bits; of a NaN only its place counts."""
    got, want = np.asarray(got, f32), np.asarray(want, f32)
    nan = np.isnan(want)
    same_nan = got.shape == want.shape and np.array_equal(np.isnan(got), nan)
    return same_nan and got[~nan].tobytes() == want[~nan].tobytes()


def nan_filled(*shape):
    """Memory for an op's output: what it leaves out shows."""
    return np.full(shape, np.nan, f32)
