"""Model files, GGUF and safetensors: names, shapes, metadata, and byte spans without copies.

>>> with open_checkpoint("model-00001-of-00002.gguf") as checkpoint:
...     info = checkpoint.require("output_norm.weight", formats=("F32",))
...     norm = checkpoint.span(info.name).view("<f4")
"""

from strata.weights.checkpoint import Checkpoint, TensorInfo
from strata.weights.fingerprint import fingerprint
from strata.weights.gguf import open_gguf
from strata.weights.opening import open_checkpoint
from strata.weights.safetensors import open_safetensors

__all__ = ["Checkpoint", "TensorInfo", "fingerprint", "open_checkpoint", "open_gguf", "open_safetensors"]
