"""docs/arithmetic.md taken literally: the orders of addition, one scalar at a time."""

import numpy as np

f32 = np.float32


def tree_loop(values):
    level = [f32(v) for v in values]
    while len(level) & (len(level) - 1) or not level:
        level.append(f32(0))
    while len(level) > 1:
        level = [f32(level[i] + level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]


def lane_loop(values):
    segments = []
    for start in range(0, len(values), 128):
        lanes = []
        for lane in range(32):
            total = f32(0)
            for value in values[start : start + 128][lane::32]:
                total = f32(total + value)
            lanes.append(total)
        segments.append(tree_loop(lanes))
    return tree_loop(segments)
