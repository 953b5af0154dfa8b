"""Open a model without being told which format it has."""

import os
from pathlib import Path

from strata.weights.checkpoint import Checkpoint
from strata.weights.files import broken, list_directory, map_file, recognise
from strata.weights.gguf import open_gguf
from strata.weights.safetensors import open_safetensors

_PYTORCH_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt")


def open_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Open the model at `path`, a file or a directory; a file is recognised by its content, whatever its name.

    Raises WeightsError where there is no model, more than one, or a damaged one.
    """
    path = Path(path)
    kind = _kind_of_directory(path) if os.path.isdir(path) else recognise(path, map_file(path))
    return open_gguf(path) if kind == "gguf" else open_safetensors(path)


def _kind_of_directory(directory: Path) -> str:
    entries = list_directory(directory)
    gguf = [entry for entry in entries if entry.suffix.lower() == ".gguf"]
    suffixes = (".safetensors", ".safetensors.index.json")
    safetensors = [entry for entry in entries if entry.name.lower().endswith(suffixes)]
    if gguf and safetensors:
        raise broken(
            directory,
            f"there are both GGUF ({gguf[0].name}) and safetensors ({safetensors[0].name}) files in this directory; "
            "give the path of one",
        )
    if gguf:
        return "gguf"
    if safetensors:
        return "safetensors"
    pytorch = [entry.name for entry in entries if entry.suffix.lower() in _PYTORCH_SUFFIXES]
    told = f"; {pytorch[0]} may be PyTorch weights, convert them to safetensors" if pytorch else ""
    raise broken(directory, f"there is no .gguf or .safetensors file in this directory ({len(entries)} files){told}")
