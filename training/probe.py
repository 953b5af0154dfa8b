"""Checks the GPU's kernels against float32 on the CPU and times the delta rule: `python -m training.probe`."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from .delta import ChunkedDeltaRule, fused_delta_rule

SHAPE = (16, 4096, 8, 64)


def inputs(batch: int, time_steps: int, heads: int, dim: int, device: str) -> list[Tensor]:
    torch.manual_seed(0)
    q, k = (torch.randn(batch, time_steps, heads // 2, dim) for _ in range(2))
    v = torch.randn(batch, time_steps, heads, dim)
    g, beta = -torch.rand(batch, time_steps, heads), torch.rand(batch, time_steps, heads)
    return [x.to(device).requires_grad_() for x in (q, k, v, g, beta)]


def run(rule: Callable[..., Tensor], values: list[Tensor]) -> list[Tensor]:
    out = rule(*values)
    return [out.float(), *torch.autograd.grad(out.float().square().mean(), values)]


def main() -> None:
    torch.set_float32_matmul_precision("high")
    exact = run(ChunkedDeltaRule(), inputs(2, 256, 8, 64, "cpu"))
    rules: dict[str, Callable[..., Tensor]] = {
        "chunked": ChunkedDeltaRule(),
        "compiled": ChunkedDeltaRule(True),
        "fla": fused_delta_rule,
    }
    for name, rule in rules.items():
        try:
            got = run(rule, inputs(2, 256, 8, 64, "cuda"))
            errors = [((a.cpu() - b).norm() / b.norm()).item() for a, b in zip(got, exact, strict=True)]
            values = inputs(*SHAPE, "cuda")
            for _ in range(3):
                run(rule, values)
            torch.cuda.synchronize()
            start = time.time()
            for _ in range(5):
                run(rule, values)
            torch.cuda.synchronize()
            speed = 5 * SHAPE[0] * SHAPE[1] / (time.time() - start)
            print(
                f"delta rule {name}: relative errors {[round(e, 5) for e in errors]}, {speed / 1e6:.2f} M tokens/s",
                flush=True,
            )
        except Exception as error:
            print(f"delta rule {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)


if __name__ == "__main__":
    main()
