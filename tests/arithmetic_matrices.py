"""Random weight matrices of any format, for the tests of every room."""

import numpy as np

from strata import formats
from strata.arithmetic import Matrix


def random_matrix(name, n, k, seed=0):
    """Random blocks with every scale finite and moderate, found by redrawing blocks that dequantize to huge or NaN."""
    row = formats.FORMATS[name]
    rng = np.random.default_rng(seed)
    blocks = n * (k // row.block)
    raw = rng.integers(0, 256, (blocks, row.block_bytes), dtype=np.uint8)
    for _ in range(1000):
        with np.errstate(all="ignore"):
            values = formats.dequantize(name, raw, blocks, row.block)
            bad = ~(np.abs(values).max(axis=1) < 1e3)
        if not bad.any():
            return Matrix(name, raw.reshape(-1), n, k)
        raw[bad] = rng.integers(0, 256, (int(bad.sum()), row.block_bytes), dtype=np.uint8)
    raise AssertionError(name)
