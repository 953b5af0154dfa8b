"""What the sides of `benchmarks.moe_layer` share: the random weights of one MoE layer, as blocks of a GGUF format."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Layer:
    """A layer's geometry, and the raw weights (experts, rows, bytes of a row) in files of one folder."""

    folder: str
    hidden: int
    width: int
    experts: int
    used: int
    format: str  # of gate and up
    down: str

    def matrix(self, part: str) -> np.ndarray:
        """gate, up (E, width, bytes) or down (E, hidden, bytes), mapped from its file."""
        raw = np.memmap(Path(self.folder) / f"{part}.bin", np.uint8, "r")
        return raw.reshape(self.experts, self.hidden if part == "down" else self.width, -1)

    def inputs(self, ids: list[list[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows x (R, hidden) fp32, expert ids (R, k) and weights (R, k), the same for every side."""
        chosen = np.array(ids, np.int64)
        x = np.random.default_rng(chosen.sum()).standard_normal((len(ids), self.hidden), np.float32)
        return x, chosen, np.full(chosen.shape, 1 / self.used, np.float32)


def digest(y: np.ndarray) -> list[float]:
    """The first values of every row of a result (R, hidden), to compare the sides' work."""
    return [float(v) for v in y[:, :8].reshape(-1)]
