"""One MoE layer of this project: the routed experts of `strata.cpu`, `expert_layer` where it has one."""

from typing import Any

import numpy as np

import strata
from benchmarks.sides.layer import Layer, digest
from benchmarks.sides.protocol import serve, timed
from strata import cpu
from strata.arithmetic import Matrix, Rows, experts
from strata.cpu import _native


class Side:
    """The operations of a side."""

    def about(self) -> dict[str, Any]:
        """Version and instruction set."""
        chosen = getattr(_native, "selected_isa", None)
        return {"version": strata.__version__, "sets": [chosen() if chosen else "baseline"]}

    def open(self, threads: int, method: str, **layer: Any) -> None:
        """Make the layer ready; `method` is for other sides."""
        self.layer = found = Layer(**layer)
        shapes = {"gate": (found.width, found.hidden), "up": (found.width, found.hidden)}
        shapes["down"] = (found.hidden, found.width)
        self.parts = {}
        for part, (n, k) in shapes.items():
            form = found.down if part == "down" else found.format
            self.parts[part] = [Matrix(form, raw.reshape(-1), n, k) for raw in found.matrix(part)]
        build = getattr(cpu, "expert_layer", None)
        self.native = build(self.parts["gate"], self.parts["up"], self.parts["down"], threads) if build else None

    def run(self, ids: list[list[int]]) -> dict[str, Any]:
        """Seconds of the experts of the given rows, and a digest of the result."""
        x, chosen, weights = self.layer.inputs(ids)
        out: list[np.ndarray] = []
        seconds = timed(lambda: out.append(self._experts(x, chosen, weights)))
        return {"seconds": seconds, "digest": digest(out[0])}

    def close(self) -> None:
        """Drop the layer."""
        self.parts, self.native = {}, None

    def _experts(self, x: np.ndarray, ids: np.ndarray, weights: np.ndarray) -> np.ndarray:
        if self.native is not None:
            return self.native(x, ids, weights)
        product, p = cpu.ops().product, self.parts

        def expert(e: int, rows: Rows) -> np.ndarray:
            return experts.feed_forward(rows, p["gate"][e], p["up"][e], p["down"][e], product)

        return experts.mix_experts(Rows(x), ids, weights, expert, self.layer.hidden)


if __name__ == "__main__":
    side = Side()
    serve({name: getattr(side, name) for name in ("about", "open", "run", "close")})
