"""Texts that a client carries for the server without reading them: a reply's thinking, to be given back later."""

import base64
import binascii
import zlib

_MARK = "strata1."
_LONGEST = 16 * 2**20


def wrap(text: str) -> str:
    """A text as one word of ASCII letters that says where it comes from. Packed, not encrypted."""
    return _MARK + base64.urlsafe_b64encode(zlib.compress(text.encode(), 1)).decode()


def unwrap(word: str) -> str | None:
    """The text that was wrapped; None for what another server made, or somebody damaged."""
    if not word.startswith(_MARK):
        return None
    try:
        packed = base64.urlsafe_b64decode(word.removeprefix(_MARK).encode())
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, _LONGEST)
        return text.decode() if unpacker.eof else None
    except (binascii.Error, zlib.error, UnicodeError):
        return None
