"""The command line against the scripted engine of the server's tests."""

import sys
from pathlib import Path
from typing import Any

import pytest

from strata.cli import model as cli_model
from strata.text import Tokenizer
from strata.text.bytelevel import ALPHABET

FAKE_ENGINE = Path(__file__).parent.parent / "server" / "scripted_engine.py"


@pytest.fixture
def fake_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives every command a byte-level tokenizer and the scripted engine; the file is where that records its input."""
    record = tmp_path / "record"
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen35", "tokenizer.ggml.merges": [],
        "tokenizer.ggml.tokens": [*ALPHABET, *specials], "tokenizer.ggml.token_type": [1] * 256 + [3, 3, 3, 4, 4],
    }  # fmt: skip
    card = cli_model.ModelCard("tiny", tmp_path / "tiny.gguf", Tokenizer.from_metadata(metadata), 52_000_000, 30 << 20)
    command = [sys.executable, "-S", str(FAKE_ENGINE), "--record", str(record)]
    monkeypatch.setattr(cli_model, "read_card", lambda path: card)
    monkeypatch.setattr(cli_model, "engine_command", lambda path, options: command)
    return record
