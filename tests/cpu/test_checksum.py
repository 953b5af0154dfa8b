"""CRC-32 in C++ against zlib's."""

import zlib

import numpy as np
import pytest

from strata.cpu import _native, checksum

SIZES = [0, 1, 15, 16, 63, 64, 65, 79, 80, 127, 128, 129, 191, 192, 1000, 4096, 100_003]


@pytest.fixture(params=["extension", "zlib"])
def crc32(request, monkeypatch):
    monkeypatch.setattr(checksum, "_FAST", request.param == "extension")
    return checksum.crc32


@pytest.mark.parametrize("size", SIZES)
def test_any_length_in_any_pieces(crc32, size):
    rng = np.random.default_rng(size)
    data = rng.integers(0, 256, size, np.uint8)
    want = zlib.crc32(data.tobytes())
    for cuts in ([], [size // 3], [1, 17], sorted(rng.integers(0, size + 1, 5))):
        pieces = [part.data for part in np.split(data, [min(cut, size) for cut in cuts])]
        assert crc32(pieces) == want
    assert crc32([bytes(size)]) == zlib.crc32(bytes(size))


def test_every_bit_counts():
    data = np.random.default_rng(0).integers(0, 256, 333, np.uint8)
    want = _native.crc32([data])
    for bit in range(0, 8 * len(data), 7):
        changed = data.copy()
        changed[bit // 8] ^= 1 << bit % 8
        assert _native.crc32([changed]) != want


def test_memory_that_is_not_aligned():
    data = np.random.default_rng(1).integers(0, 256, 500, np.uint8)
    for start in range(33):
        assert _native.crc32([data[start:]]) == zlib.crc32(data[start:].tobytes())
