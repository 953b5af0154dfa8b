"""One MoE layer of this project: the routed experts of `strata.cpu`."""

from typing import Any

import numpy as np

import strata
from benchmarks.sides.layer import Layer, digest
from benchmarks.sides.protocol import serve, timed
from strata import cpu
from strata.arithmetic import Matrix
from strata.cpu import _native


class Side:
    """The operations of a side."""

    def about(self) -> dict[str, Any]:
        """Version and instruction set."""
        return {"version": strata.__version__, "sets": [_native.selected_isa()]}

    def open(self, threads: int, method: str, **layer: Any) -> None:
        """Make the layer ready; `method` is for other sides."""
        self.layer = found = Layer(**layer)
        shapes = {"gate": (found.width, found.hidden), "up": (found.width, found.hidden)}
        shapes["down"] = (found.hidden, found.width)
        parts = []
        for part, (n, k) in shapes.items():
            form = found.down if part == "down" else found.format
            parts.append([Matrix(form, raw.reshape(-1), n, k) for raw in found.matrix(part)])
        self.experts = cpu.expert_layer(*parts, threads)

    def run(self, ids: list[list[int]]) -> dict[str, Any]:
        """Seconds of the experts of the given rows, and a digest of the result."""
        x, chosen, weights = self.layer.inputs(ids)
        out: list[np.ndarray] = []
        seconds = timed(lambda: out.append(self.experts(x, chosen, weights)))
        return {"seconds": seconds, "digest": digest(out[0])}

    def close(self) -> None:
        """Drop the layer."""
        self.experts = None


if __name__ == "__main__":
    side = Side()
    serve({name: getattr(side, name) for name in ("about", "open", "run", "close")})
