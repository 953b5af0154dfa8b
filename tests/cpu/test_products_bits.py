"""The C++ products against the numpy reference, bit for bit: every format on every instruction set of the machine."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from arithmetic_matrices import random_matrix
from cpu.native_products import native_product
from cpu.window_rows import same

from strata import formats
from strata.arithmetic import Matrix, Rows, products
from strata.cpu import _native

QUANTIZED = [name for name, row in formats.FORMATS.items() if not row.is_float]
CODEBOOKS = [name for name in QUANTIZED if name.startswith(("IQ1", "IQ2", "IQ3"))]
f32 = np.float32


def any_matrix(name, n, k, seed=0):
    """A random matrix of any format, float ones with a few special values."""
    if not formats.FORMATS[name].is_float:
        return random_matrix(name, n, k, seed)
    values = np.random.default_rng(seed).standard_normal((n, k)).astype(f32)
    values[0, :3] = [0, -0.0, 1e-40]
    values[n // 2] *= f32(1e-6)
    bits = {"F32": values, "F16": values.astype(np.float16), "BF16": (values.view(np.uint32) >> 16).astype(np.uint16)}
    return Matrix(name, np.ascontiguousarray(bits[name]).view(np.uint8).reshape(-1), n, k)


def random_rows(rows, k, seed=1):
    """Rows of several sizes, with zero blocks, a tiny and a denormal row."""
    x = np.random.default_rng(seed).standard_normal((rows, k)).astype(f32)
    x[0, : min(50, k // 2)] = 0
    x[rows // 2, k // 2 :] *= f32(1e-19)  # around 2^-60, where a block becomes zero
    if rows > 2:
        x[1] *= f32(1e4)
    if rows > 4:
        x[3] = 0
        x[4] *= f32(1e-40)
    return x


def k_of(name, blocks):
    return max(formats.FORMATS[name].block, 32) * blocks


@pytest.mark.parametrize("name", list(formats.FORMATS))
def test_every_row_count_and_odd_sizes(name, isa):
    w = any_matrix(name, 37, k_of(name, 3))
    x = random_rows(13, w.k)
    want = products.product(Rows(x), w)
    for rows in [*range(1, 10), 13]:
        assert same(native_product(w, x[:rows]), want[:rows]), rows
    for rows in (1, 5, 9):
        assert same(native_product(w, x[:rows], repack=False), want[:rows]), rows


@pytest.mark.parametrize("name", list(formats.FORMATS))
@pytest.mark.parametrize("blocks", [1, 5, 9])
def test_any_number_of_blocks(name, blocks, isa):
    w = any_matrix(name, 16 if blocks == 5 else 19, k_of(name, blocks), seed=blocks)
    x = random_rows(12, w.k, seed=blocks)
    want = products.product(Rows(x), w)
    assert same(native_product(w, x), want)
    assert same(native_product(w, x, repack=False), want)
    assert same(native_product(w, x[:1], repack=False), want[:1])


@pytest.mark.parametrize("name", list(formats.FORMATS))
def test_many_rows(name, isa):
    w = any_matrix(name, 17, k_of(name, 1 if formats.FORMATS[name].block > 64 else 3))
    x = random_rows(513 if name in ("Q4_K", "Q8_0", "IQ3_S") else 64, w.k)
    assert same(native_product(w, x), products.product(Rows(x), w))


@pytest.mark.parametrize("name", QUANTIZED)
def test_groups_of_rows_and_chunks_of_k(name, isa):
    """Row counts that go in groups of every size, over several chunks of 512 elements and an odd number of tiles."""
    k = 9 * 256 if formats.FORMATS[name].block > 64 else 45 * 64
    w = any_matrix(name, 37, k, seed=3)
    x = random_rows(37, k, seed=3)
    want = products.product(Rows(x), w)
    for rows in (9, 12, 16, 17, 19, 20, 22, 37):
        assert same(native_product(w, x[:rows]), want[:rows]), rows
    assert same(native_product(w, x, repack=False), want)


def test_threads_compute_at_once(isa):
    """Two callers, each with registers of its own."""
    w = any_matrix("Q4_K", 64, 768)
    x = random_rows(40, 768)
    want = products.product(Rows(x), w)
    with ThreadPoolExecutor(2) as pool:
        assert all(same(y, want) for y in pool.map(lambda _: native_product(w, x), range(20)))


@pytest.mark.parametrize("name", ["Q4_K", "Q6_K", "Q8_0", "NVFP4", "IQ2_S", "F16"])
@pytest.mark.parametrize("rows", [3, 30])
def test_chosen_rows_and_split_tiles(name, rows, isa):
    w = any_matrix(name, 70, k_of(name, 2))
    x = random_rows(rows, w.k)
    index = np.random.default_rng(0).integers(0, rows, rows + 4).astype(np.uint32)
    want = products.product(Rows(x), w)[index]
    assert same(native_product(w, x, index=index), want)
    assert same(native_product(w, x, index=index, tiles=[(3, 5), (0, 1), (1, 3)]), want)
    part = native_product(w, x, tiles=[(1, 2)])
    assert np.isnan(part[:, :16]).all()
    assert np.isnan(part[:, 32:]).all()
    assert not np.isnan(part[:, 16:32]).any()


@pytest.mark.parametrize("name", ["Q4_0", "Q4_K", "Q6_K", "IQ2_XS", "MXFP4", "F32"])
def test_damaged_rows_give_nan_and_leave_the_others(name, isa):
    w = any_matrix(name, 33, k_of(name, 2))
    for rows in (4, 24):
        x = random_rows(rows, w.k)
        x[1, 3], x[2, w.k - 1] = np.inf, np.nan
        got = native_product(w, x)
        assert same(got, products.product(Rows(x), w))
        assert np.isnan(got[[1, 2]]).all() or name == "F32"
        assert np.isfinite(np.delete(got, [1, 2], axis=0)).all()


@pytest.mark.parametrize("name", QUANTIZED)
def test_bytes_of_any_value(name, isa):
    """Random bytes: infinite, NaN, tiny and huge scales included."""
    row = formats.FORMATS[name]
    k = k_of(name, 2)
    raw = np.random.default_rng(5).integers(0, 256, 48 * row.row_bytes(k), dtype=np.uint8)
    w = Matrix(name, raw, 48, k)
    x = random_rows(12, k)
    with np.errstate(all="ignore"):
        want = products.product(Rows(x), w)
    for rows in (1, 6, 12):
        assert same(native_product(w, x[:rows]), want[:rows])


@pytest.mark.parametrize("name", CODEBOOKS)
def test_every_row_of_a_codebook(name, isa):
    """At least 15,000 row numbers of random bits: all of the codebook are among them."""
    row = formats.FORMATS[name]
    raw = np.random.default_rng(6).integers(0, 256, (1024, row.block_bytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        bad = ~(np.abs(formats.dequantize(name, raw, 1024, 256)).max(axis=1) < 1e3)
    raw = np.resize(raw[~bad], raw.shape)
    w = Matrix(name, raw.reshape(-1), 256, 1024)
    x = random_rows(2, 1024)
    assert same(native_product(w, x), products.product(Rows(x), w))


@pytest.mark.parametrize("name", QUANTIZED)
def test_extreme_codes(name, isa):
    """All ones and all zeros against rows of +-127: the largest sums stay exact."""
    k = k_of(name, 1)
    raw = np.repeat(np.array([[255], [128], [127], [0]], np.uint8), formats.FORMATS[name].row_bytes(k), axis=1)
    raw[:, :2] = [0, 60]
    w = Matrix(name, raw.reshape(-1), 4, k)
    x = np.stack([np.ones(k, f32), -np.ones(k, f32), np.where(np.arange(k) % 2, 1, -1).astype(f32)])
    with np.errstate(all="ignore"):
        want = products.product(Rows(x), w)
    assert same(native_product(w, x), want)


def test_quantized_rows(isa):
    x = random_rows(9, 500)
    x[5, 40], x[6, 70] = np.inf, np.nan
    x[7, :32] = f32(2.0**-60)
    x[7, 32:64] = np.nextafter(f32(2.0**-60), f32(0))
    x[8, :4] = [2.5, -2.5, 127, 0.5]  # ties to even where the largest is 127
    want = products.quantize_rows(x)
    q, scale = np.full((9, 512), 99, np.int8), np.full((9, 16), 99, f32)
    _native.quantize_rows(x, q, scale)
    assert q.tobytes() == want.q.tobytes()
    assert same(scale, want.scale)


def test_an_unknown_instruction_set_names_those_of_the_machine():
    with pytest.raises(ValueError, match='"sse9" cannot be used here; .* have auto, portable'):
        _native.select_isa("sse9")
    assert _native.selected_isa() == _native.available_isas()[-1]
