"""The C++ product into memory that was NaN, for the tests of its formats."""

import numpy as np

from strata.cpu import _native
from strata.cpu.products import native_matrix


def native_product(w, x, *, index=None, tiles=None, repack=True):
    """y of rows x, or of those at `index`, times w; only the columns of the spans of tiles, where they are given."""
    native = native_matrix(w)
    if repack:
        native.repack()
    y = np.full((len(x if index is None else index), w.n), np.nan, np.float32)
    for first, last in [(0, native.tiles)] if tiles is None else tiles:
        _native.product(native, x, y, index, first, last)
    return y
