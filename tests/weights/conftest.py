"""Model files for the tests: written by the formats' own packages, or byte by byte where those refuse to."""

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest


def text(value: str | bytes) -> bytes:
    """A GGUF string."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def key_value(key: str | bytes, kind: int, value: bytes) -> bytes:
    """A GGUF key-value pair whose value is already encoded."""
    return text(key) + struct.pack("<I", kind) + value


def tensor_row(name: str | bytes, ne: Sequence[int], ggml_type: int, offset: int, rank: int | None = None) -> bytes:
    """A row of the GGUF tensor table; `ne` is innermost first."""
    rank = len(ne) if rank is None else rank
    return text(name) + struct.pack(f"<I{len(ne)}QIQ", rank, *ne, ggml_type, offset)


def gguf_bytes(
    pairs: Sequence[bytes] = (),
    rows: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    tensor_count: int | None = None,
    key_count: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A whole GGUF file, assembled by hand from the format's description."""
    counts = (len(rows) if tensor_count is None else tensor_count, len(pairs) if key_count is None else key_count)
    head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(pairs) + b"".join(rows)
    return head + bytes(-len(head) % alignment) + data


def safetensors_bytes(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    """A whole safetensors file; `header` is bytes, or an object to be written as JSON."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    """Write bytes to `x.gguf` (the name says nothing about the content) and give its path."""

    def write(data: bytes, name: str = "x.gguf") -> Path:
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


@pytest.fixture
def build() -> SimpleNamespace:
    """The functions above, for tests that cannot import this file by name."""
    return SimpleNamespace(
        text=text, key_value=key_value, tensor_row=tensor_row, gguf=gguf_bytes, safetensors=safetensors_bytes
    )
