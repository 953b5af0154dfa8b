"""The parts of a `qwen4_exp` layer for training; parameter names are those of the published checkpoints.

Sources: the `qwen4_exp` architecture as published (gated delta nets, QSA sparse attention, low-rank hyper-connections,
n-gram table), Zhang & Sennrich (RMSNorm), Su et al. (rotary embedding). Shapes are (batch, time, features).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from .config import ModelConfig, ngram_head_sizes, ngram_multipliers, ngram_table_rows
from .delta import gated_delta_rule

DeltaRule = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


class Norm(nn.Module):
    """RMS norm that multiplies by 1 + weight; with `groups`, each of the equal parts is normalised alone."""

    def __init__(self, width: int, eps: float, groups: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps, self.groups = eps, groups

    def forward(self, x: Tensor) -> Tensor:
        parts = x.float().unflatten(-1, (self.groups, -1))
        parts = parts * torch.rsqrt(parts.square().mean(-1, keepdim=True) + self.eps)
        return (parts.flatten(-2) * (1.0 + self.weight)).to(x.dtype)


class GatedNorm(nn.Module):
    """RMS norm over the last axis, multiplied by weight and by the sigmoid of a gate."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        normed = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + self.eps)
        return (self.weight * normed * torch.sigmoid(gate.float())).to(gate.dtype)


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


class HyperConnection(nn.Module):
    """Reads one input out of the residual streams and weighs how the output returns to each of them."""

    def __init__(self, config: ModelConfig, inject: bool = True) -> None:
        super().__init__()
        self.streams = config.hc_count
        width = config.hc_count * config.hidden_size
        self.hc_norm = Norm(width, config.rms_norm_eps, config.hc_count)
        self.input_mix_weight_down = linear(width, config.hc_lowrank)
        self.input_mix_weight_up = linear(config.hc_lowrank, width)
        if inject:
            self.block_inject_weight = linear(width, config.hc_count)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, time, streams*hidden) -> the normed streams and the mixed input (batch, time, hidden)."""
        normed = self.hc_norm(x)
        mix = self.input_mix_weight_up(functional.silu(self.input_mix_weight_down(normed) / self.streams))
        mixed = (torch.sigmoid(mix) * normed).unflatten(-1, (self.streams, -1)).mean(-2)
        return normed, mixed

    def inject(self, x: Tensor, normed: Tensor, output: Tensor) -> Tensor:
        weights = 2 * torch.sigmoid(self.block_inject_weight(normed) / self.streams)
        return x + (output.unsqueeze(-2) * weights.unsqueeze(-1)).flatten(-2).to(x.dtype)


def causal_conv(x: Tensor, weight: Tensor, dilation: int = 1) -> Tensor:
    """Depthwise causal convolution; x (batch, time, channels), weight (channels, 1, taps), the last tap is now."""
    taps = weight.shape[-1]
    padded = functional.pad(x, (0, 0, (taps - 1) * dilation, 0))
    terms = [padded[:, i * dilation : i * dilation + x.shape[1]] * weight[:, 0, i].to(x.dtype) for i in range(taps)]
    return sum(terms[1:], terms[0])


class ConvWeight(nn.Module):
    """The weight of a depthwise convolution, under the checkpoint's name."""

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, 1, taps))


class DeltaNet(nn.Module):
    """Gated delta net: short convolution, gated delta rule, gated norm."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dim = config.linear_head_dim
        self.keys = config.linear_num_key_heads * self.dim
        self.values = config.linear_num_value_heads * self.dim
        hidden, heads = config.hidden_size, config.linear_num_value_heads
        self.in_proj_qkv = linear(hidden, 2 * self.keys + self.values)
        self.in_proj_z = linear(hidden, self.values)
        self.in_proj_b = linear(hidden, heads)
        self.in_proj_a = linear(hidden, heads)
        self.conv1d = ConvWeight(2 * self.keys + self.values, config.linear_conv_kernel_dim)
        self.dt_bias = nn.Parameter(torch.empty(heads))
        self.A_log = nn.Parameter(torch.empty(heads))
        self.norm = GatedNorm(self.dim, config.rms_norm_eps)
        self.out_proj = linear(self.values, hidden)
        self.rule: DeltaRule = gated_delta_rule

    def project(self, x: Tensor) -> tuple[Tensor, ...]:
        """q, k, v (batch, time, heads, dim), log decay and beta (batch, time, heads), and the output gate."""
        qkv = functional.silu(causal_conv(self.in_proj_qkv(x), self.conv1d.weight))
        q, k, v = (y.unflatten(-1, (-1, self.dim)) for y in qkv.split([self.keys, self.keys, self.values], -1))
        beta = torch.sigmoid(self.in_proj_b(x).float())
        g = -self.A_log.exp() * functional.softplus(self.in_proj_a(x).float() + self.dt_bias)
        return q, k, v, g, beta, self.in_proj_z(x).unflatten(-1, (-1, self.dim))

    def finish(self, out: Tensor, gate: Tensor) -> Tensor:
        return self.out_proj(self.norm(out, gate).flatten(-2))


def rotary_table(config: ModelConfig, time: int, device: torch.device) -> Tensor:
    """Cosines and sines (2, time, rotary_dim/2), float32."""
    exponents = torch.arange(0, config.rotary_dim, 2, device=device, dtype=torch.float32) / config.rotary_dim
    angles = torch.arange(time, device=device, dtype=torch.float32)[:, None] * config.rope_theta**-exponents
    return torch.stack([angles.cos(), angles.sin()])


def rotate(x: Tensor, table: Tensor) -> Tensor:
    """Rotary embedding of the leading dims of x (..., time, dim): pairs are (i, i + rotary/2)."""
    cos, sin = table
    half = cos.shape[-1]
    a, b, rest = x[..., :half].float(), x[..., half : 2 * half].float(), x[..., 2 * half :]
    return torch.cat([(a * cos - b * sin).to(x.dtype), (b * cos + a * sin).to(x.dtype), rest], -1)


class Indexer(nn.Module):
    """QSA indexer: scores blocks of consecutive tokens for each query; the best are attended."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.dim = config.indexer_n_heads, config.indexer_head_dim
        self.ratio = config.indexer_compress_ratio
        self.blocks = config.indexer_budget // self.ratio
        self.index_qk_proj = linear(config.hidden_size, (self.heads + 1) * self.dim)
        self.q_layernorm = Norm(self.dim, config.rms_norm_eps)
        self.k_layernorm = Norm(self.dim, config.rms_norm_eps)

    def queries_and_keys(self, x: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
        """Queries (batch, heads, time, dim) and keys of the complete blocks (batch, time // ratio, dim)."""
        q, k = self.index_qk_proj(x).split([self.heads * self.dim, self.dim], -1)
        q = self.q_layernorm(q.unflatten(-1, (self.heads, self.dim))).transpose(1, 2)
        complete = x.shape[1] // self.ratio
        pooled = k[:, : complete * self.ratio].unflatten(1, (complete, self.ratio)).float().mean(2).to(k.dtype)
        starts = table[:, : complete * self.ratio : self.ratio]
        return rotate(q, table), rotate(self.k_layernorm(pooled), starts)

    def scores(self, q: Tensor, keys: Tensor, positions: Tensor) -> Tensor:
        """Scores (batch, queries, blocks) in float32; blocks not complete at `positions` (queries,) are -inf."""
        with torch.autocast(q.device.type, enabled=False):
            raw = torch.relu(q.float() @ keys.float().mT.unsqueeze(1)).sum(1) / math.sqrt(self.dim)
        complete = (positions + 1) // self.ratio
        hidden = torch.arange(keys.shape[1], device=q.device) >= complete[:, None]
        return raw.masked_fill(hidden, float("-inf"))

    @torch.no_grad()
    def selection(self, x: Tensor, table: Tensor) -> Tensor:
        """Boolean (batch, 1, time, time): the causal positions of the selected blocks and of the open block."""
        q, keys = self.queries_and_keys(x, table)
        time = x.shape[1]
        positions = torch.arange(time, device=x.device)
        scores = self.scores(q, keys, positions)
        best = scores.topk(min(self.blocks, scores.shape[-1]), -1).indices
        chosen = torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True) & scores.isfinite()
        chosen = chosen.repeat_interleave(self.ratio, -1)
        chosen = functional.pad(chosen, (0, time - chosen.shape[-1]))
        complete = (positions + 1) // self.ratio * self.ratio
        tail = (positions[None] >= complete[:, None]) & (positions[None] <= positions[:, None])
        return (chosen | tail).unsqueeze(1)


class Attention(nn.Module):
    """Grouped-query attention with normed q and k, partial rotary embedding, a sigmoid output gate and an indexer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        hidden = config.hidden_size
        self.q_proj = linear(hidden, 2 * self.heads * self.dim)
        self.k_proj = linear(hidden, self.kv_heads * self.dim)
        self.v_proj = linear(hidden, self.kv_heads * self.dim)
        self.o_proj = linear(self.heads * self.dim, hidden)
        self.q_norm = Norm(self.dim, config.rms_norm_eps)
        self.k_norm = Norm(self.dim, config.rms_norm_eps)
        self.indexer = Indexer(config)

    def project(self, x: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v (batch, heads, time, dim), keys and values repeated for every query head, and the output gate."""
        q, gate = self.q_proj(x).unflatten(-1, (self.heads, 2 * self.dim)).chunk(2, -1)
        k, v = (p(x).unflatten(-1, (self.kv_heads, self.dim)) for p in (self.k_proj, self.v_proj))
        q, k = (rotate(n(y).transpose(1, 2), table) for n, y in ((self.q_norm, q), (self.k_norm, k)))
        repeat = self.heads // self.kv_heads
        return q, k.repeat_interleave(repeat, 1), v.transpose(1, 2).repeat_interleave(repeat, 1), gate.flatten(-2)

    def finish(self, attended: Tensor, gate: Tensor) -> Tensor:
        return self.o_proj(attended.transpose(1, 2).flatten(-2) * torch.sigmoid(gate))

    def index_loss(self, x: Tensor, q: Tensor, k: Tensor, table: Tensor, positions: Tensor) -> Tensor:
        """KL of the indexer's distribution over blocks from the attention mass, at `positions` (queries,).

        The indexer learns from detached inputs, so this loss changes nothing else.
        """
        with torch.no_grad():
            logits = (q[:, :, positions].float() @ k.float().mT) * self.dim**-0.5
            later = torch.arange(k.shape[2], device=q.device) > positions[:, None]
            mass = logits.masked_fill(later, float("-inf")).softmax(-1).mean(1)
            ratio = self.indexer.ratio
            complete = k.shape[2] // ratio
            mass = mass[..., : complete * ratio].unflatten(-1, (complete, ratio)).sum(-1)
        index_q, index_keys = self.indexer.queries_and_keys(x.detach(), table)
        scores = self.indexer.scores(index_q[:, :, positions], index_keys, positions)
        visible = scores.isfinite()
        target = mass * visible
        target = target / target.sum(-1, keepdim=True).clamp_min(1e-9)
        log_share = torch.where(visible, scores, -1e4).log_softmax(-1)
        return (target * (target.clamp_min(1e-9).log() - log_share)).sum(-1).mean()


class Mlp(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (
            linear(hidden, width),
            linear(hidden, width),
            linear(width, hidden),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        count, width, hidden = config.num_experts, config.moe_intermediate_size, config.hidden_size
        self.gate_up_proj = nn.Parameter(torch.empty(count, 2 * width, hidden))
        self.down_proj = nn.Parameter(torch.empty(count, hidden, width))


class Router(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))


class SparseMoe(nn.Module):
    """Routed experts and a gated shared expert.

    The narrow experts are computed as one wide MLP whose hidden units are weighed by the router (zero for experts not
    chosen): more arithmetic than needed, but one plain matrix product each way, which a GPU does faster at this size.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.top_k = config.num_experts_per_tok
        self.gate = Router(config)
        self.experts = Experts(config)
        self.shared_expert = Mlp(config.hidden_size, config.shared_expert_intermediate_size)
        self.shared_expert_gate = linear(config.hidden_size, 1)

    def route(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Router logits and weights (batch, time, experts), float32; weights are zero but for the top k."""
        with torch.autocast(x.device.type, enabled=False):
            logits = functional.linear(x.float(), self.gate.weight)
        shares = logits.softmax(-1)
        top = shares.topk(self.top_k, -1)
        weights = torch.zeros_like(shares).scatter(-1, top.indices, top.values / top.values.sum(-1, keepdim=True))
        return logits, weights

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the output and (2 + experts,): balance loss, z loss, and each expert's share of the choices."""
        logits, weights = self.route(x)
        experts, _, hidden = self.experts.gate_up_proj.shape
        gate, up = self.experts.gate_up_proj.chunk(2, 1)
        h = functional.silu(functional.linear(x, gate.reshape(-1, hidden)))
        h = h * functional.linear(x, up.reshape(-1, hidden))
        h = (h.unflatten(-1, (experts, -1)) * weights.unsqueeze(-1).to(h.dtype)).flatten(-2)
        routed = functional.linear(h, self.experts.down_proj.transpose(0, 1).reshape(hidden, -1))
        shared = torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        used = (weights > 0).float().mean((0, 1)) / self.top_k
        balance = experts * (used.detach() * logits.softmax(-1).mean((0, 1))).sum()
        z_loss = logits.logsumexp(-1).square().mean()
        return routed + shared, torch.cat([torch.stack([balance, z_loss]), used.detach()])


class NgramEmbedding(nn.Module):
    """Rows of a table chosen by hashes of the last 2..n tokens; a document's end token cuts the n-gram."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.size, self.per_order, self.eos = config.ngram_size, config.heads_per_ngram, config.eos_token_id
        self.ngram_embedding = nn.Embedding(ngram_table_rows(config), config.ngram_row_width)
        sizes = torch.tensor(ngram_head_sizes(config))
        self.register_buffer("multipliers", torch.tensor(ngram_multipliers(config)), persistent=False)
        self.register_buffer("sizes", sizes, persistent=False)
        self.register_buffer("offsets", sizes.cumsum(0) - sizes, persistent=False)

    def rows(self, tokens: Tensor) -> Tensor:
        """Table rows (batch, time, heads) of tokens (batch, time)."""
        previous, open_history = [tokens], torch.ones_like(tokens, dtype=torch.bool)
        for shift in range(1, self.size):
            moved = functional.pad(tokens, (shift, 0), value=self.eos)[:, : tokens.shape[1]]
            open_history = open_history & (moved != self.eos)
            previous.append(torch.where(open_history, moved, self.eos))
        mixed, rows = previous[0] * self.multipliers[0], []
        for order in range(1, self.size):
            mixed = mixed ^ (previous[order] * self.multipliers[order])
            mine = slice((order - 1) * self.per_order, order * self.per_order)
            rows.append(mixed.unsqueeze(-1) % self.sizes[mine] + self.offsets[mine])
        return torch.cat(rows, -1)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.ngram_embedding(self.rows(tokens)).flatten(-2)


class Ple(nn.Module):
    """Adds n-gram features to every stream, gated by how well the stream agrees with the n-gram's key."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width, self.streams, self.dilation = config.hc_count * config.hidden_size, config.hc_count, config.ngram_size
        self.ple_embedding = NgramEmbedding(config)
        self.key_proj = linear(config.ple_embed_dim, width)
        self.value_proj = linear(config.ple_embed_dim, config.hidden_size)
        self.norm_key, self.norm_query, self.norm_conv = (
            Norm(width, config.rms_norm_eps, config.hc_count) for _ in range(3)
        )
        self.conv1d = ConvWeight(width, config.ple_conv_kernel_size)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        found = self.ple_embedding(tokens)
        key, query = self.norm_key(self.key_proj(found)), self.norm_query(x)
        agreement = (key * query).float().unflatten(-1, (self.streams, -1))
        score = agreement.sum(-1, keepdim=True) / math.sqrt(agreement.shape[-1])
        gate = torch.sigmoid(score.abs().clamp_min(1e-6).sqrt() * score.sign())
        value = (gate * self.value_proj(found).unsqueeze(-2)).flatten(-2).to(x.dtype)
        return value + functional.silu(causal_conv(self.norm_conv(value), self.conv1d.weight, self.dilation))
