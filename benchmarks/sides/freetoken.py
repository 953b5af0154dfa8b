"""One MoE layer of FreeToken: its CPU expert executor, fed GGUF blocks or its own NVFP4."""

import types
from typing import Any

import freetoken
import numpy as np
import torch
from freetoken.moe.cpu_executor import CpuMoeExecutor

from benchmarks.sides.layer import Layer, digest
from benchmarks.sides.protocol import serve, timed

GGML_TYPES = {"Q8_0": 8, "Q4_K": 12, "IQ2_XS": 17, "IQ3_XXS": 18, "IQ4_NL": 20, "IQ3_S": 21}
MOST_ROWS = 64


class Side:
    """The operations of a side."""

    def about(self) -> dict[str, Any]:
        """Version; the variant of its kernels is known after `open`."""
        return {"version": freetoken.__version__, "sets": []}

    def open(self, threads: int, method: str, **layer: Any) -> str:
        """Make the layer ready; `method` is gguf or nvfp4. Returns the kernels' name."""
        self.layer = found = Layer(**layer)
        options: dict[str, int] = {}
        if method == "gguf":
            options = {"gate_up_type": GGML_TYPES[found.format], "down_type": GGML_TYPES[found.down]}
            both = np.concatenate([found.matrix("gate"), found.matrix("up")], axis=1)
            banks = {"gate_up": torch.from_numpy(both), "down": torch.from_numpy(np.array(found.matrix("down")))}
        else:
            banks = _nvfp4(found)
        sources = {name: [bank] for name, bank in banks.items()}
        cache = types.SimpleNamespace(
            num_layers=1, num_experts=found.experts, quant_format=method, bank_sources=sources
        )
        self.executor = CpuMoeExecutor(
            cache,
            top_k=found.used,
            activation="silu",
            apply_router_weight_on_input=False,
            num_threads=threads,
            max_tokens=MOST_ROWS,
            device=torch.device("cpu"),
            layer_formats=[(method, options)],
        )
        return str(self.executor.isa)

    def run(self, ids: list[list[int]]) -> dict[str, Any]:
        """Seconds of the experts of the given rows, and a digest of the result."""
        x, chosen, weights = self.layer.inputs(ids)
        io, rows = self.executor._io, len(ids)
        io["x"][:rows].copy_(torch.from_numpy(x))
        io["ids"][:rows].copy_(torch.from_numpy(chosen))
        io["w"][:rows].copy_(torch.from_numpy(weights))
        seconds = timed(lambda: self.executor._ext.run(0, rows))
        return {"seconds": seconds, "digest": digest(io["y"][:rows].float().numpy())}

    def close(self) -> None:
        """Drop the layer."""
        self.executor = None


def _nvfp4(layer: Layer) -> dict[str, torch.Tensor]:
    """Random codes with one scale: other weights than the files', for speed alone."""
    e, h, i = layer.experts, layer.hidden, layer.width
    codes = np.random.default_rng(0)

    def bank(rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        raw = np.frombuffer(codes.bytes(e * rows * columns // 2), np.uint8).reshape(e, rows, columns // 2)
        return torch.from_numpy(raw.copy()), torch.full((e, rows, columns // 16), 0x20, dtype=torch.uint8)

    (gate_up, gate_up_scale), (down, down_scale) = bank(2 * i, h), bank(h, i)
    return {
        "gate_up": gate_up,
        "gate_up_scale": gate_up_scale,
        "gate_up_global": torch.full((e, 2 * i), 0.1),
        "down": down,
        "down_scale": down_scale,
        "down_global": torch.full((e, h), 0.1),
    }


if __name__ == "__main__":
    side = Side()
    serve({name: getattr(side, name) for name in ("about", "open", "run", "close")})
