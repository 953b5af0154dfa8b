"""The whole model for training: trunk, MTP layer and their losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .config import ModelConfig
from .layers import Attention, DeltaNet, HyperConnection, Norm, Ple, SparseMoe, linear, rotary_table


@dataclass
class Notes:
    """What a forward pass collects beside its result."""

    router: list[Tensor] = field(default_factory=list)
    index_losses: list[Tensor] = field(default_factory=list)


class Layer(nn.Module):
    """One layer: (n-gram features,) delta net or attention, then experts, each behind a hyper-connection."""

    def __init__(self, config: ModelConfig, attention: bool, ple: bool) -> None:
        super().__init__()
        if attention:
            self.self_attn = Attention(config)
        else:
            self.linear_attn = DeltaNet(config)
        self.attention = attention
        self.mlp = SparseMoe(config)
        if ple:
            self.ple = Ple(config)
        self.attn_hyper_connection = HyperConnection(config)
        self.mlp_hyper_connection = HyperConnection(config)

    def delta_start(self, x: Tensor) -> tuple[Tensor, ...]:
        normed, mixed = self.attn_hyper_connection(x)
        return normed, *self.linear_attn.project(mixed)

    def delta_end(self, x: Tensor, normed: Tensor, out: Tensor, gate: Tensor) -> Tensor:
        return self.attn_hyper_connection.inject(x, normed, self.linear_attn.finish(out, gate))

    def expert_half(self, x: Tensor) -> tuple[Tensor, Tensor]:
        normed, mixed = self.mlp_hyper_connection(x)
        output, router = self.mlp(mixed)
        return self.mlp_hyper_connection.inject(x, normed, output), router

    def attention_start(self, x: Tensor, table: Tensor) -> tuple[Tensor, ...]:
        normed, mixed = self.attn_hyper_connection(x)
        return normed, mixed, *self.self_attn.project(mixed, table)

    def attention_end(self, x: Tensor, normed: Tensor, attended: Tensor, gate: Tensor) -> Tensor:
        return self.attn_hyper_connection.inject(x, normed, self.self_attn.finish(attended, gate))

    def ple_half(self, x: Tensor, tokens: Tensor) -> Tensor:
        return x + self.ple(x, tokens)

    def compile_parts(self, compiled: bool) -> None:
        """Compile the parts that are one graph each, or go back to plain ones; kernels between them stay."""
        for name in ("delta_start", "delta_end", "expert_half", "attention_start", "attention_end", "ple_half"):
            self.__dict__.pop(name, None)
            if compiled:
                self.__dict__[name] = partial(_compiled(name), self)

    def attend(
        self,
        x: Tensor,
        table: Tensor,
        notes: Notes,
        sparse: bool,
        index_at: Tensor | None,
        past: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Tensor:
        """Attention over this window, or, as a later draft step, over the first step's keys and `past` steps' own."""
        normed, mixed, q, k, v, gate = self.attention_start(x, table)
        mask = self.self_attn.indexer.selection(mixed, table) if sparse and not past else None
        if index_at is not None and not past:
            notes.index_losses.append(self.self_attn.index_loss(mixed, q.detach(), k.detach(), table, index_at))
        if past is not None:
            past.append((k, v))
            if len(past) > 1:
                mask = draft_mask(len(past), x.shape[1], x.device)
                k, v = (torch.cat(parts, 2) for parts in zip(*past, strict=True))
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return self.attention_end(x, normed, attended, gate)

    def forward(
        self,
        x: Tensor,
        tokens: Tensor,
        table: Tensor,
        notes: Notes,
        sparse: bool = False,
        index_at: Tensor | None = None,
        past: list[tuple[Tensor, Tensor]] | None = None,
    ) -> Tensor:
        if hasattr(self, "ple"):
            x = self.ple_half(x, tokens)
        if self.attention:
            x = self.attend(x, table, notes, sparse, index_at, past)
        else:
            normed, q, k, v, g, beta, gate = self.delta_start(x)
            x = self.delta_end(x, normed, self.linear_attn.rule(q, k, v, g, beta), gate)
        x, router = self.expert_half(x)
        notes.router.append(router)
        return x


@cache
def _compiled(name: str) -> Callable[..., Any]:
    """One compiled function for all layers: its graph takes the layer's weights as inputs."""
    return torch.compile(getattr(Layer, name), dynamic=False)


def draft_mask(steps: int, time: int, device: torch.device) -> Tensor:
    """(time, steps*time): a row of draft step n sees committed positions from step 1 and its own chain's later keys."""
    lag = torch.arange(time, device=device)[:, None] - torch.arange(time, device=device)[None]
    committed = lag >= steps - 1
    return torch.cat([committed] + [lag == steps - 1 - step for step in range(1, steps)], 1)


class Mtp(nn.Module):
    """Multi-token prediction: from a token and the trunk's streams before it, the token after it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.streams = config.hc_count
        self.fc_embedding, self.fc_hidden = linear(hidden, hidden), linear(hidden, hidden)
        self.pre_fc_norm_embedding = Norm(hidden, config.rms_norm_eps)
        self.pre_fc_norm_hidden = Norm(hidden * config.hc_count, config.rms_norm_eps, config.hc_count)
        self.layers = nn.ModuleList([Layer(config, attention=True, ple=False)])
        self.hyper_connection_mixer = HyperConnection(config, inject=False)

    def enter(self, embedded: Tensor, streams: Tensor) -> Tensor:
        """Streams that enter the layer at each position, from its token and the streams one position before."""
        before = functional.pad(streams, (0, 0, 1, 0))[:, :-1]
        normed = self.pre_fc_norm_hidden(before).unflatten(-1, (self.streams, -1))
        token = self.fc_embedding(self.pre_fc_norm_embedding(embedded))
        return (self.fc_hidden(normed) + token.unsqueeze(-2)).flatten(-2)

    def steps(
        self,
        count: int,
        embedded: Tensor,
        streams: Tensor,
        tokens: Tensor,
        table: Tensor,
        notes: Notes,
        sparse: bool = False,
        index_at: Tensor | None = None,
    ) -> list[Tensor]:
        """Hidden states of `count` draft steps, each fed the streams of the one before.

        Step n's state at position t predicts token t + 1 from the trunk's streams at t - n; positions below n are
        meaningless.
        """
        results, past = [], []
        for _ in range(count):
            streams = self.layers[0](self.enter(embedded, streams), tokens, table, notes, sparse, index_at, past)
            results.append(self.hyper_connection_mixer(streams)[1])
        return results


class Trunk(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Layer(config, config.is_attention(i), i == config.ple_layer) for i in range(config.num_hidden_layers)
        )
        self.hyper_connection_mixer = HyperConnection(config, inject=False)


class DemoModel(nn.Module):
    """The trunk, the tied output matrix and the MTP layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        self.mtp = Mtp(config)
        self.reset()

    @torch.no_grad()
    def reset(self) -> None:
        """Initial weights: normal(0.02) matrices, small outputs, delta heads with memories from short to long."""
        depth = math.sqrt(2 * self.config.num_hidden_layers)
        for name, weight in self.named_parameters():
            if name.endswith(("out_proj.weight", "o_proj.weight", "down_proj.weight", "experts.down_proj")):
                weight.normal_(0, 0.04 / depth)
            elif name.endswith("A_log"):
                weight.copy_(torch.empty_like(weight).uniform_(1, 16).log())
            elif name.endswith("dt_bias"):
                step = torch.exp(torch.empty_like(weight).uniform_(math.log(1e-3), math.log(1e-1)))
                weight.copy_(step + torch.log(-torch.expm1(-step)))
            elif name.endswith("linear_attn.conv1d.weight"):
                weight.uniform_(-0.5, 0.5)
            elif name.endswith("ple.conv1d.weight"):
                weight.zero_()
            elif name.endswith("embed_tokens.weight"):
                weight.normal_(0, 0.04)
            elif weight.dim() > 1:
                weight.normal_(0, 0.02)

    def streams(
        self, tokens: Tensor, notes: Notes, sparse: bool = False, index_at: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Embedded tokens, the trunk's last streams and the rotary table for tokens (batch, time)."""
        embedded = functional.embedding(tokens, self.model.embed_tokens.weight)
        if torch.is_autocast_enabled(tokens.device.type):
            embedded = embedded.to(torch.get_autocast_dtype(tokens.device.type))
        table = rotary_table(self.config, tokens.shape[1], tokens.device)
        x = embedded.repeat(1, 1, self.config.hc_count)
        for layer in self.model.layers:
            x = layer(x, tokens, table, notes, sparse, index_at)
        return embedded, x, table

    def head(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.model.embed_tokens.weight)

    def forward(self, tokens: Tensor, sparse: bool = True) -> Tensor:
        """Logits (batch, time, vocabulary); `sparse` attends to what the indexer selects, as inference does."""
        _, streams, _ = self.streams(tokens, Notes(), sparse)
        return self.head(self.model.hyper_connection_mixer(streams)[1])
