"""Rows of every format as floats, gathered in any order, against the formats room."""

import numpy as np
import pytest
from arithmetic_matrices import random_matrix

from strata import formats
from strata.arithmetic import Matrix
from strata.cpu import _native
from strata.cpu.products import native_matrix

pytestmark = [pytest.mark.usefixtures("isa"), pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")]


@pytest.mark.parametrize("name", formats.FORMATS)
@pytest.mark.parametrize("blocks", [1, 5])
def test_rows(name, blocks):
    w = random_matrix(name, 40, max(32, formats.FORMATS[name].block) * blocks, seed=blocks)
    for count in (1, 15, 16, 33):
        ids = np.random.default_rng(count).integers(0, w.n, count)
        got = np.full((count, w.k), np.nan, np.float32)
        _native.dequantize(native_matrix(w), ids, got)
        assert got.tobytes() == w.rows(ids).tobytes()


@pytest.mark.parametrize("name", ["MXFP4", "NVFP4", "Q4_0", "Q4_K"])
def test_scales_that_products_take_for_zero(name):
    """Every scale byte there is; infinite and NaN scales are compared by their places."""
    row = formats.FORMATS[name]
    raw = np.random.default_rng(1).integers(0, 256, (600, row.block_bytes), dtype=np.uint8)
    if name == "MXFP4":
        raw[:256, 0] = np.arange(256)
    w = Matrix(name, raw.reshape(-1), 600, row.block)
    got = np.full((600, w.k), np.nan, np.float32)
    _native.dequantize(native_matrix(w), np.arange(600), got)
    want = w.rows(np.arange(600))
    nan = np.isnan(want)
    assert np.array_equal(np.isnan(got), nan)
    assert got[~nan].tobytes() == want[~nan].tobytes()
