"""The byte-level alphabet of GPT-2's BPE: each of the 256 bytes is written as one printable character.

Printable Latin-1 bytes stand for themselves; the other 68 take the code points from 256 on, in byte order
(Radford et al. 2019; the same table is part of every byte-level vocabulary file).
"""

from collections.abc import Mapping


def _alphabet() -> list[str]:
    printable = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    shifted = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(shifted)) for byte in range(256)]


ALPHABET: list[str] = _alphabet()
"""Character of each byte value."""

BYTE_OF: Mapping[str, int] = {character: byte for byte, character in enumerate(ALPHABET)}
"""Byte value of each character of the alphabet."""


def to_bytes(token: str) -> bytes:
    """The bytes a vocabulary entry stands for; characters outside the alphabet stand for their own UTF-8."""
    try:
        return bytes([BYTE_OF[character] for character in token])
    except KeyError:
        return b"".join(
            bytes([BYTE_OF[character]]) if character in BYTE_OF else character.encode("utf-8", "surrogatepass")
            for character in token
        )
