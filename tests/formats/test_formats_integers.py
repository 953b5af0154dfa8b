"""The canonical integer form: shapes, exactness, the bounds of its sums, and independence of how a tensor is cut."""

import numpy as np
import pytest
from gguf import quants

from strata.formats import FORMATS, dequantize, grids, unpack

QUANTIZED = [name for name, row in FORMATS.items() if not row.is_float]
ROWS, BLOCKS = 4, 3

# For each format a block with the largest values: the byte that fills it, and pieces that differ.
EXTREME = {
    "Q4_0": (0x00, []),
    "Q4_1": (0xFF, []),
    "Q5_0": (0x00, []),
    "Q5_1": (0xFF, []),
    "Q8_0": (0x80, []),
    "Q2_0": (0xFF, []),
    "Q2_K": (0xFF, []),
    "Q3_K": (0x00, []),  # -4 with a scale of -32
    "Q4_K": (0xFF, []),
    "Q5_K": (0xFF, []),
    "Q6_K": (0x00, [(slice(192, 208), 0x80)]),  # -32 with a scale of -128
    "IQ1_S": (0xFF, [(slice(35, 50, 2), 0x7F)]),  # row of ones, scale 15, plus an eighth
    "IQ1_M": (0xFF, [(slice(32, 48), 0x77)]),
    "IQ2_XXS": (0xFF, [(slice(2 + 8 * i, 6 + 8 * i), 57) for i in range(8)]),  # 57: the row of the largest sum
    "IQ2_XS": (0xFF, []),
    "IQ2_S": (0xFF, []),
    "IQ3_XXS": (0xFF, [(slice(2, 66), 135)]),
    "IQ3_S": (0xFF, [(slice(2, 66), 338 - 256)]),
    "IQ4_NL": (0x00, []),  # -127
    "IQ4_XS": (0x00, []),  # -127 with a scale of -32
    "TQ1_0": (0xFF, []),
    "TQ2_0": (0xFF, []),
    "MXFP4": (0x77, []),
    "NVFP4": (0x77, []),
}


def extreme_block(name):
    fill, pieces = EXTREME[name]
    block = np.full(FORMATS[name].block_bytes, fill, np.uint8)
    for piece, byte in pieces:
        block[piece] = byte
    return block


def sums(name, blocks):
    """Sum of |value| over each group, as Python-sized integers."""
    row = FORMATS[name]
    values = unpack(name, blocks, len(blocks), row.block).values
    return np.abs(values.astype(np.int64)).reshape(-1, row.group).sum(axis=1)


@pytest.mark.parametrize("name", QUANTIZED)
class TestIntegers:
    def test_shapes_and_types(self, name, random_blocks):
        row = FORMATS[name]
        k = BLOCKS * row.block
        parts = unpack(name, random_blocks(name, ROWS * BLOCKS), ROWS, k)
        assert (parts.values.shape, parts.values.dtype) == ((ROWS, k), np.int16)
        assert (parts.scales.shape, parts.scales.dtype) == ((ROWS, k // row.group), np.float32)
        assert (parts.minimums is None) == (parts.min_scales is None) == (not row.minimums)
        if row.minimums:
            assert (parts.minimums.shape, parts.minimums.dtype) == ((ROWS, k // 16), np.int16)
            assert (parts.min_scales.shape, parts.min_scales.dtype) == ((ROWS, k // 32), np.float32)
        arrays = [parts.values, parts.scales, parts.minimums, parts.min_scales]
        assert all(array is None or array.flags.c_contiguous for array in arrays)

    def test_weights_are_scale_times_value_minus_minimum(self, name, random_blocks):
        row = FORMATS[name]
        k = BLOCKS * row.block
        blocks = random_blocks(name, ROWS * BLOCKS, seed=2)
        parts = unpack(name, blocks, ROWS, k)
        exact = parts.values * np.repeat(parts.scales.astype(np.float64), row.group, axis=1)
        if row.minimums:
            offset = parts.minimums * np.repeat(parts.min_scales.astype(np.float64), 2, axis=1)
            exact -= np.repeat(offset, 16, axis=1)
        with np.errstate(over="ignore"):
            expected = exact.astype(np.float32)
        np.testing.assert_array_equal(dequantize(name, blocks, ROWS, k), expected)

    def test_max_isum_is_reached_by_the_extreme_codes(self, name):
        assert 127 * sums(name, extreme_block(name)[None]).max() == FORMATS[name].max_isum

    def test_max_isum_is_never_passed(self, name):
        rng = np.random.default_rng(0)
        blocks = rng.integers(0, 256, (2000, FORMATS[name].block_bytes), dtype=np.uint8)
        assert 127 * sums(name, blocks).max() <= FORMATS[name].max_isum

    def test_sums_are_exact_in_float32(self, name):
        assert 0 < FORMATS[name].max_isum < 2**24

    def test_rows_alone_equal_rows_together(self, name, random_blocks):
        row = FORMATS[name]
        k = BLOCKS * row.block
        raw = random_blocks(name, ROWS * BLOCKS, seed=3).reshape(ROWS, -1)
        together = unpack(name, raw, ROWS, k)
        for index in range(ROWS):
            alone = unpack(name, raw[index], 1, k)
            for field in ("values", "scales", "minimums", "min_scales"):
                one, all_rows = getattr(alone, field), getattr(together, field)
                assert one is all_rows is None or one.tobytes() == all_rows[index].tobytes()

    def test_any_shape_and_stride_of_the_same_bytes(self, name, random_blocks):
        row = FORMATS[name]
        k = BLOCKS * row.block
        raw = random_blocks(name, ROWS * BLOCKS, seed=4)
        expected = unpack(name, raw, ROWS, k).values
        strided = np.zeros((ROWS, 2, BLOCKS * row.block_bytes + 1), np.uint8)[:, 1, 1:]
        strided[:] = raw.reshape(ROWS, -1)
        raw.flags.writeable = False
        for shape in (raw.reshape(-1), raw.reshape(2, 2, -1), strided):
            np.testing.assert_array_equal(unpack(name, shape, ROWS, k).values, expected)


@pytest.mark.parametrize(("name", "largest"), [("Q4_1", 1), ("Q5_1", 1), ("Q2_K", 15), ("Q4_K", 63), ("Q5_K", 63)])
def test_sums_of_minimums_are_exact_in_float32(name, largest):
    minimums = unpack(name, extreme_block(name), 1, FORMATS[name].block).minimums
    assert (minimums == largest).all()
    assert 127 * 32 * largest < 2**24


def test_which_formats_have_minimums():
    assert {name for name, row in FORMATS.items() if row.minimums} == {"Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K"}


@pytest.mark.parametrize("name", ["IQ1", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"])
def test_codebooks(name):
    published = getattr(quants, "IQ1_S" if name == "IQ1" else name)
    published.init_grid()
    rows, elements = published.grid_shape
    table = getattr(grids, name)
    np.testing.assert_array_equal(table.view(np.int8).reshape(rows, elements), published.grid.reshape(rows, elements))
