"""Every format against the `gguf` package and, with its wheel installed, against the code of llama.cpp."""

import ctypes
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from strata.formats import FORMATS, dequantize, unpack

ROWS, BLOCKS = 3, 5
QUANTIZED = [name for name, row in FORMATS.items() if not row.is_float]
IN_GGUF = [name for name in FORMATS if name in GGMLQuantizationType.__members__]
# What `gguf` can quantize, and the step between neighbouring codes as a share of the largest weight.
STEPS = {
    "BF16": 2**-8,
    "Q4_0": 1 / 8,
    "Q4_1": 2 / 15,
    "Q5_0": 1 / 16,
    "Q5_1": 2 / 31,
    "Q8_0": 1 / 127,
    "TQ1_0": 0,
    "TQ2_0": 0,
    "MXFP4": 1 / 4,
}
HALF_TINY = 2.0**-24


def oracle(name, raw):
    with np.errstate(all="ignore"):
        return quants.dequantize(raw, GGMLQuantizationType[name])


def same_weights(name, blocks):
    raw = blocks.reshape(ROWS, -1)
    k = BLOCKS * FORMATS[name].block
    np.testing.assert_array_equal(dequantize(name, raw, ROWS, k), oracle(name, raw))


def test_only_q2_0_is_newer_than_the_gguf_package():
    assert set(FORMATS) - set(IN_GGUF) <= {"Q2_0"}


@pytest.mark.parametrize("name", IN_GGUF)
def test_number_and_sizes(name):
    kind, row = GGMLQuantizationType[name], FORMATS[name]
    assert row.ggml_type == kind.value
    assert (row.block, row.block_bytes) == GGML_QUANT_SIZES[kind]


@pytest.mark.parametrize("name", [name for name in QUANTIZED if name in IN_GGUF])
class TestDequantize:
    @pytest.mark.parametrize("seed", range(4))
    def test_random_codes(self, name, seed, random_blocks):
        same_weights(name, random_blocks(name, ROWS * BLOCKS, seed))

    def test_any_bytes_at_all(self, name):
        rng = np.random.default_rng(7)
        for _ in range(20):  # float16 scales of every kind: denormal, infinite, NaN
            same_weights(name, rng.integers(0, 256, (ROWS * BLOCKS, FORMATS[name].block_bytes), dtype=np.uint8))

    @pytest.mark.parametrize("byte", [0x00, 0xFF, 0x7F, 0x80])
    def test_one_byte_everywhere(self, name, byte):
        same_weights(name, np.full((ROWS * BLOCKS, FORMATS[name].block_bytes), byte, np.uint8))

    @pytest.mark.parametrize("scale", [-1.5, 0.0, -0.0, HALF_TINY, -513 * HALF_TINY, 65504.0, np.inf, -np.inf, np.nan])
    def test_special_scales(self, name, scale, set_scales):
        scales = np.where(np.arange(ROWS * BLOCKS) % 2, scale, 0.75)
        for code in (0x00, 0xFF, 0x88, 0x77):
            blocks = np.full((ROWS * BLOCKS, FORMATS[name].block_bytes), code, np.uint8)
            set_scales(name, blocks, scales)
            same_weights(name, blocks)


@pytest.mark.parametrize("name", ["MXFP4", "NVFP4"])
def test_every_small_float_scale(name):
    row = FORMATS[name]
    blocks = np.random.default_rng(3).integers(0, 256, (256, row.block_bytes), dtype=np.uint8)
    blocks[:, : row.block // row.group] = np.arange(256, dtype=np.uint8)[:, None]
    np.testing.assert_array_equal(dequantize(name, blocks, 256, row.block), oracle(name, blocks))


@pytest.mark.parametrize("name", STEPS)
def test_round_trip_of_quantized_floats(name):
    k = 512
    weights = np.random.default_rng(11).standard_normal((7, k), np.float32)
    if name.startswith("TQ"):
        weights = np.sign(weights) * np.float32(0.5)
    raw = quants.quantize(weights, GGMLQuantizationType[name])
    back = dequantize(name, raw, 7, k)
    np.testing.assert_array_equal(back, oracle(name, raw))
    assert np.abs(back - weights).max() <= STEPS[name] * np.abs(weights).max()


class TestFloats:
    def test_f32_keeps_every_bit(self):
        raw = np.random.default_rng(1).integers(0, 256, 4 * 6 * 50, dtype=np.uint8)
        assert dequantize("F32", raw, 6, 50).tobytes() == raw.tobytes()

    def test_every_f16(self):
        raw = np.arange(65536, dtype="<u2").view(np.uint8)
        with np.errstate(invalid="ignore"):
            expected = np.arange(65536, dtype="<u2").view("<f2").astype(np.float32).reshape(256, 256)
        np.testing.assert_array_equal(dequantize("F16", raw, 256, 256), expected)

    def test_every_bf16(self):
        raw = np.arange(65536, dtype="<u2").view(np.uint8)
        with np.errstate(invalid="ignore"):
            expected = quants.dequantize(raw.reshape(256, 512), GGMLQuantizationType.BF16)
        np.testing.assert_array_equal(dequantize("BF16", raw, 256, 256), expected)

    def test_results_are_copies(self):
        raw = np.zeros(16, np.uint8)
        dequantize("F32", raw, 1, 4)[:] = 1
        assert not raw.any()


@pytest.fixture(scope="module")
def ggml():
    if find_spec("xllamacpp") is None:
        pytest.skip("needs the llama.cpp of the xllamacpp wheel")
    import xllamacpp

    (library,) = Path(xllamacpp.__file__).parent.glob("*.so")
    loaded = ctypes.CDLL(str(library))
    loaded.ggml_type_name.restype = ctypes.c_char_p
    loaded.ggml_blck_size.restype = ctypes.c_int64
    loaded.ggml_type_size.restype = ctypes.c_size_t
    return loaded


@pytest.mark.parametrize("name", QUANTIZED)
class TestLlamaCpp:
    def test_number_and_sizes(self, name, ggml):
        row = FORMATS[name]
        assert ggml.ggml_type_name(row.ggml_type).decode().upper() == name
        assert (ggml.ggml_blck_size(row.ggml_type), ggml.ggml_type_size(row.ggml_type)) == (row.block, row.block_bytes)

    def test_weights(self, name, ggml, random_blocks):
        row, count = FORMATS[name], 301
        blocks = random_blocks(name, count, seed=5)
        expected = np.empty((count, row.block), np.float32)
        function = getattr(ggml, "dequantize_row_" + name.lower().replace("_k", "_K"))
        function(
            blocks.ctypes.data_as(ctypes.c_void_p),
            expected.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_int64(expected.size),
        )
        np.testing.assert_array_equal(dequantize(name, blocks, count, row.block), expected)


def test_q2_0_by_hand():
    codes = np.arange(16, dtype=np.uint8) * 17
    block = np.concatenate([np.array([-0.5], "<f2").view(np.uint8), codes])
    parts = unpack("Q2_0", block, 1, 64)
    # Byte 0b01010101 holds 1 1 1 1, byte 0b00010001 holds 1 0 1 0, lowest bits first; weights are d * (code - 1).
    assert parts.values[0, :8].tolist() == [-1, -1, -1, -1, 0, -1, 0, -1]
    assert parts.values[0, 20:24].tolist() == [0, 0, 0, 0]
    assert parts.values[0, 60:].tolist() == [2, 2, 2, 2]
    assert parts.scales.tolist() == [[-0.5, -0.5]]
    assert parts.minimums is None
