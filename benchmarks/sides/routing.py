"""Which experts a model's routers choose for given conversations, as llama.cpp computes them; nothing is timed."""

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "oracles"))
from oracle_llamacpp import LlamaModel

from benchmarks.sides.protocol import serve


def distinct(
    model: str, conversations: list[list[int]], settle: int, prompt: list[int], layers: int, experts: int, used: int
) -> dict[str, Any]:
    """Mean distinct experts a layer of one step of the first 1, 2, 4 ... conversations, and of a whole prompt.

    Steps before `settle` are left out.
    """
    chosen = []
    for tokens in [*conversations, prompt]:
        with LlamaModel(Path(model), context=-(-len(tokens) // 256) * 256) as llama:
            llama.forward(np.array(tokens))
            chosen.append(np.stack(llama.chosen(layers, experts, used)))  # (layers, T, k)
    steps = np.stack(chosen[:-1], axis=2)  # (layers, T, conversations, k)
    found: dict[str, float] = {}
    count = 1
    while count <= len(conversations):
        found[str(count)] = _distinct(steps[:, settle:, :count])
        count *= 2
    found["prompt"] = _distinct(chosen[-1][:, None])
    return found


def _distinct(ids: np.ndarray) -> float:
    """Mean over the first two axes of the number of different values in the rest."""
    flat = ids.reshape(-1, int(np.prod(ids.shape[2:])))
    return float(np.mean([len(np.unique(row)) for row in flat]))


if __name__ == "__main__":
    serve({"distinct": distinct})
