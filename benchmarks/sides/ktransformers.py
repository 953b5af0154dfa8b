"""One MoE layer of KTransformers' kt-kernel, which makes its own int4 or int8 weights from random bf16 ones."""

import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.sides.layer import Layer, digest
from benchmarks.sides.protocol import serve, timed

POOL = 8  # experts with weights of their own; the others repeat them


def _unpinned(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """kt-kernel pins its buffers, which raises where there is no NVIDIA driver."""

    def plain(*arguments: Any, pin_memory: bool = False, **options: Any) -> torch.Tensor:
        return make(*arguments, **options)

    return plain


for _name in ("zeros", "empty", "ones", "full"):
    setattr(torch, _name, _unpinned(getattr(torch, _name)))

import kt_kernel  # noqa: E402


class Side:
    """The operations of a side."""

    def about(self) -> dict[str, Any]:
        """Version and the module that it picked."""
        return {"version": kt_kernel.__version__, "sets": [kt_kernel.__cpu_variant__]}

    def open(self, threads: int, method: str, **layer: Any) -> str:
        """Make the layer ready; `method` is AMXINT4 or AMXINT8."""
        self.layer = found = Layer(**layer)
        self.folder = tempfile.TemporaryDirectory()
        os.chdir(self.folder.name)  # it makes folders where it runs
        self.wrapper = kt_kernel.KTMoEWrapper(
            layer_idx=0,
            num_experts=found.experts,
            num_experts_per_tok=found.used,
            hidden_size=found.hidden,
            moe_intermediate_size=found.width,
            gpu_experts_mask=None,
            cpuinfer_threads=threads,
            threadpool_count=1,
            weight_path="",
            chunked_prefill_size=512,
            method=method,
        )
        shapes = ((found.width, found.hidden), (found.width, found.hidden), (found.hidden, found.width))
        weights = [self._weights(shape) for shape in shapes]
        self.wrapper.load_weights_from_tensors(*weights, torch.arange(found.experts))
        return method

    def run(self, ids: list[list[int]]) -> dict[str, Any]:
        """Seconds of the experts of the given rows, and a digest of the result."""
        x, chosen, weights = self.layer.inputs(ids)
        rows, y = torch.tensor([len(ids)], dtype=torch.int32), torch.empty(x.shape, dtype=torch.bfloat16)
        inputs, picked, factors = torch.from_numpy(x).bfloat16(), torch.from_numpy(chosen), torch.from_numpy(weights)
        pointers = [t.data_ptr() for t in (picked, factors, inputs, y)]

        def work() -> None:
            task = self.wrapper.moe.forward_task(rows.data_ptr(), self.layer.used, *pointers, False)
            self.wrapper.cpu_infer.submit(task)
            self.wrapper.cpu_infer.sync()

        return {"seconds": timed(work), "digest": digest(y.float().numpy())}

    def close(self) -> None:
        """Drop the layer."""
        self.wrapper = None
        os.chdir("/")
        self.folder.cleanup()

    def _weights(self, shape: tuple[int, int]) -> torch.Tensor:
        pool = (torch.randn(POOL, *shape) * 0.02).bfloat16()
        return pool.repeat(-(-self.layer.experts // POOL), 1, 1)[: self.layer.experts].contiguous()


if __name__ == "__main__":
    side = Side()
    serve({name: getattr(side, name) for name in ("about", "open", "run", "close")})
