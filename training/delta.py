"""The gated delta rule over whole sequences, in chunks, with matrix products only.

Source of the mathematics: Yang et al., "Gated Delta Networks" (2024): a state S (keys x values) decays by exp(g), then
moves by beta towards storing v under k. Within a chunk the updates are a unit lower triangular system; between
chunks the state follows a linear recurrence, so one small product a chunk is all that is sequential.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK = 64


class _UnitLowerInverse(torch.autograd.Function):
    """Inverse of I + A for strictly lower triangular A (..., n, n), n a power of two, by doubling diagonal blocks."""

    @staticmethod
    def forward(ctx: Any, strict: Tensor) -> Tensor:
        n = strict.shape[-1]
        inverse = torch.eye(n, dtype=strict.dtype, device=strict.device).expand(strict.shape).contiguous()
        size = 1
        while size < n:
            blocks = n // (2 * size)
            view = inverse.unflatten(-1, (blocks, 2 * size)).unflatten(-3, (blocks, 2 * size))
            coupling = strict.unflatten(-1, (blocks, 2 * size)).unflatten(-3, (blocks, 2 * size))
            mine = view.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)
            low = coupling.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)[..., size:, :size]
            if size == 1:
                mine[..., 1:, :1] = -low
            else:
                mine[..., size:, :size] = -(mine[..., size:, size:] @ low @ mine[..., :size, :size])
            size *= 2
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        transposed = inverse.mT
        return -(transposed @ grads[0] @ transposed).tril(-1)


def _prepare(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """Normalised chunks (batch, heads, chunks, CHUNK, dim) of q, k and v, decays, and the strict triangular system."""
    batch, time, heads, dim = v.shape
    q, k = (x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) + 1e-6) for x in (q, k))
    q, k = (x.repeat_interleave(heads // x.shape[2], 2) for x in (q * dim**-0.5, k))

    def chunked(x: Tensor) -> Tensor:
        x = torch.nn.functional.pad(x.float().transpose(1, 2), (0, 0, 0, -time % CHUNK))
        return x.reshape(batch, heads, -1, CHUNK, x.shape[-1])

    qc, kc, vc, bc = chunked(q), chunked(k), chunked(v), chunked(beta.unsqueeze(-1))
    total = chunked(g.unsqueeze(-1)).squeeze(-1).cumsum(-1)
    # exp of the masked difference, not of the raw one: above the diagonal it would overflow
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=v.device).tril()
    decay = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(~lower, float("-inf")).exp()
    strict = ((kc * bc) @ kc.mT * decay).tril(-1)
    grown, last = total.exp().unsqueeze(-1), total[..., -1:]
    k_out = kc * (last - total).exp().unsqueeze(-1)
    return strict, vc * bc, kc * bc * grown, k_out, last.exp().unsqueeze(-1), qc * grown, qc @ kc.mT * decay


def _couple(inverse: Tensor, v_in: Tensor, k_in: Tensor, k_out: Tensor, shrink: Tensor) -> tuple[Tensor, ...]:
    """The chunk's own updates, what they read of the state, and the recurrence S' = step S + added."""
    solved_v, solved_k = inverse @ v_in, inverse @ k_in
    step = shrink * torch.eye(k_in.shape[-1], device=k_in.device) - k_out.mT @ solved_k
    return solved_v, solved_k, step, k_out.mT @ solved_v


def _states(step: Tensor, added: Tensor) -> Tensor:
    """The state before each chunk (batch, heads, chunks, dim, dim): the only sequential part."""
    batch, heads, chunks = step.shape[:3]
    steps, adds = (x.movedim(2, 0).flatten(1, 2).unbind() for x in (step, added))
    states = [torch.zeros_like(adds[0])]
    for index in range(chunks - 1):
        states.append(torch.baddbmm(adds[index], steps[index], states[-1]))
    return torch.stack(states).unflatten(1, (batch, heads)).movedim(0, 2)


def _finish(before: Tensor, solved_v: Tensor, solved_k: Tensor, q_in: Tensor, within: Tensor) -> Tensor:
    """Outputs (batch, heads, chunks, CHUNK, dim): what the state before the chunk gives and what the chunk adds."""
    return q_in @ before + within @ (solved_v - solved_k @ before)


class ChunkedDeltaRule:
    """The gated delta rule from a zero state; `compiled` fuses its elementwise parts on a GPU."""

    def __init__(self, compiled: bool = False) -> None:
        parts = (_prepare, _couple, _finish)
        self.prepare, self.couple, self.finish = (torch.compile(p, dynamic=False) if compiled else p for p in parts)

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
        """q, k: (batch, time, key heads, dim); v: (batch, time, value heads, dim); g (log decay, <= 0) and beta:
        (batch, time, value heads). q and k are L2-normalised and q scaled by dim**-0.5 here; value heads share the key
        heads in groups of neighbours. Returns (batch, time, value heads, dim) in v's dtype.
        """
        batch, time, heads, dim = v.shape
        with torch.autocast(v.device.type, enabled=False):
            strict, v_in, k_in, k_out, shrink, q_in, within = self.prepare(q, k, v, g, beta)
            inverse = _UnitLowerInverse.apply(strict)
            solved_v, solved_k, step, added = self.couple(inverse, v_in, k_in, k_out, shrink)
            out = self.finish(_states(step, added), solved_v, solved_k, q_in, within)
        return out.reshape(batch, heads, -1, dim)[:, :, :time].transpose(1, 2).to(v.dtype)


gated_delta_rule = ChunkedDeltaRule()


def fused_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """The same function by the Triton kernels of flash-linear-attention (GPU only; not bit-identical)."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], 2) for x in (q, k))
    q, k, v, beta = (x.bfloat16().contiguous() for x in (q, k, v, beta))
    out, _ = chunk_gated_delta_rule(q, k, v, g=g.float().contiguous(), beta=beta, use_qk_l2norm_in_kernel=True)
    return out
