"""Blocks of every format for the tests of this room."""

from collections.abc import Callable

import numpy as np
import pytest

from strata.formats import FORMATS

# Where each format keeps its float16 scales: the block's, then that of its minimums.
HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ1_S": [0],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
}


def _set_scales(name: str, blocks: np.ndarray, scales: np.ndarray) -> None:
    halves = scales.astype("<f2")
    for turn, at in enumerate(HALVES.get(name, [])):
        blocks[:, at : at + 2] = np.roll(halves, turn)[:, None].view(np.uint8)
    if name == "IQ1_M":  # the float16 is spread over the top nibbles of four words
        words = np.ascontiguousarray(blocks[:, 48:]).view("<u2")
        top = halves.view("<u2")[:, None] >> np.array([0, 4, 8, 12], np.uint16) & 15
        blocks[:, 48:] = ((words & 0x0FFF) | (top << 12)).astype("<u2").view(np.uint8)


@pytest.fixture
def set_scales() -> Callable[[str, np.ndarray, np.ndarray], None]:
    """Write one number a block as its float16 scale (and, moved on by one block, as that of its minimums), in place."""
    return _set_scales


@pytest.fixture
def random_blocks() -> Callable[..., np.ndarray]:
    """Make uint8 (count, block_bytes) of random codes with finite scales of both signs: (name, count, seed)."""

    def make(name: str, count: int, seed: int = 0) -> np.ndarray:
        rng = np.random.default_rng(seed)
        blocks = rng.integers(0, 256, (count, FORMATS[name].block_bytes), dtype=np.uint8)
        _set_scales(name, blocks, rng.uniform(-2, 2, count))
        return blocks

    return make
