"""The two orders of addition, against element-by-element loops that follow docs/arithmetic.md literally."""

import numpy as np
import pytest
from arithmetic_loops import lane_loop, tree_loop

from strata.arithmetic.order import lane_sum, ordered_sum, tree

f32 = np.float32


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 31, 32, 33, 127, 128, 129, 256, 300, 1000])
def test_sums_follow_the_written_order(size):
    values = (np.random.default_rng(size).standard_normal((3, size)) * 1e3).astype(f32)
    for row, got_tree, got_lanes, got_line in zip(
        values, tree(values), lane_sum(values), ordered_sum(values, 1), strict=True
    ):
        assert got_tree.tobytes() == tree_loop(row).tobytes()
        assert got_lanes.tobytes() == lane_loop(row).tobytes()
        total = f32(0)
        for value in row:
            total = f32(total + value)
        assert got_line.tobytes() == total.tobytes()


def test_the_order_matters_for_these_values():
    values = np.random.default_rng(0).standard_normal((200, 300)).astype(f32)
    assert (tree(values) != lane_sum(values)).any()
    assert (tree(values) != np.sum(values, axis=1)).any()


def test_tree_along_another_axis():
    values = np.random.default_rng(1).standard_normal((5, 7, 3)).astype(f32)
    assert np.array_equal(tree(values, axis=1), tree(np.moveaxis(values, 1, -1)))
