"""CRC-32 of memory in pieces: the extension's where the processor has the instructions for it, else zlib's."""

import zlib
from collections.abc import Sequence

from strata.cpu import _native

_FAST = _native.has_fast_crc32()


def crc32(pieces: Sequence[memoryview]) -> int:
    """The checksum of the pieces one after the other, as `zlib.crc32` has it; other threads run meanwhile."""
    if _FAST:
        return _native.crc32(pieces)
    crc = 0
    for piece in pieces:
        crc = zlib.crc32(piece, crc)
    return crc
