"""The tokenizer of a model file."""

from pathlib import Path

from strata.text.tokenizer import Tokenizer
from strata.weights import Checkpoint, open_checkpoint


def tokenizer_of(checkpoint: Checkpoint, path: Path) -> Tokenizer:
    """From a GGUF's metadata, or from the files beside safetensors. Raises WeightsError."""
    if checkpoint.kind == "gguf":
        return Tokenizer.from_metadata(checkpoint.metadata, path.name)
    return Tokenizer.from_directory(path if path.is_dir() else path.parent)


def open_tokenizer(path: str | Path) -> Tokenizer:
    """Of the model at `path`, nothing else of which is read. Raises WeightsError."""
    with open_checkpoint(path) as checkpoint:
        return tokenizer_of(checkpoint, Path(path))
