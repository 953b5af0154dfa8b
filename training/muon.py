"""Muon for matrices and AdamW for the rest.

Source: Jordan et al., "Muon" (2024): momentum, orthogonalised by a Newton-Schulz iteration; the update is scaled to the
size of an Adam update (Liu et al., "Muon is scalable", 2025).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

_ADAM_NAMES = (
    "embed_tokens",
    "ngram_embedding",
    "conv1d",
    "in_proj_a",
    "in_proj_b",
    "block_inject",
    "mlp.gate.",
    "shared_expert_gate",
    "index_qk_proj",
    "norm",
    "dt_bias",
    "A_log",
)


def orthogonalised(matrices: Tensor) -> Tensor:
    """The nearest semi-orthogonal matrices of (count, rows, columns), about, in bfloat16 on a GPU."""
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x.mT if tall else x).to(matrices.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum orthogonalised over the last two axes; parameters of one shape are handled together."""

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.1) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                by_shape.setdefault(parameter.shape, []).append(parameter)
            for shape, parameters in by_shape.items():
                grads = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
                buffers = [self.state[p].setdefault("momentum", torch.zeros_like(p)) for p in parameters]
                torch._foreach_lerp_(buffers, grads, 1 - group["momentum"])
                mixed = torch._foreach_lerp(grads, buffers, group["momentum"])
                stacked = torch.stack(mixed).reshape(-1, *shape[-2:])
                scale = 0.2 * max(shape[-2:]) ** 0.5
                updates = orthogonalised(stacked).reshape(len(parameters), *shape).unbind()
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["decay"])
                torch._foreach_add_(parameters, updates, alpha=-group["lr"] * scale)


def optimizers(model: nn.Module, matrix_lr: float, other_lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the projections and experts; AdamW for embeddings (faster), gates, routers, norms and scalars."""
    matrices, tables, others = [], [], []
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2 or any(part in name for part in _ADAM_NAMES):
            (tables if "ngram_embedding" in name else others).append(parameter)
        else:
            matrices.append(parameter)
    groups = [{"params": tables, "lr": 2.5 * other_lr}, {"params": others, "lr": other_lr}]
    fused = next(model.parameters()).is_cuda
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.97), eps=1e-10, weight_decay=0.0, fused=fused)
    result: list[torch.optim.Optimizer] = [Muon(matrices, matrix_lr), adam]
    for optimizer in result:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return result
