"""Geometry of the demo model, in the terms of the published `qwen4_exp` configuration."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

_MASK64 = (1 << 64) - 1


@dataclass(frozen=True)
class ModelConfig:
    """Every size of a `qwen4_exp` text model with one MTP layer; the defaults are the demo model's."""

    vocab_size: int = 16384
    hidden_size: int = 512
    num_hidden_layers: int = 8
    full_attention_interval: int = 4
    num_attention_heads: int = 8
    num_key_value_heads: int = 2
    head_dim: int = 64
    rotary_dim: int = 32
    rope_theta: float = 100000.0
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 4096
    linear_num_key_heads: int = 4
    linear_num_value_heads: int = 8
    linear_head_dim: int = 64
    linear_conv_kernel_dim: int = 4
    num_experts: int = 32
    num_experts_per_tok: int = 4
    moe_intermediate_size: int = 64
    shared_expert_intermediate_size: int = 256
    hc_count: int = 4
    hc_lowrank: int = 32
    indexer_n_heads: int = 4
    indexer_head_dim: int = 32
    indexer_budget: int = 512
    indexer_compress_ratio: int = 4
    ple_layer: int = 1
    ple_embed_dim: int = 512
    ple_conv_kernel_size: int = 4
    ngram_size: int = 3
    heads_per_ngram: int = 4
    ngram_vocab_size_base: int = 8192
    ngram_seed: int = 1234
    eos_token_id: int = 16375
    pad_token_id: int = 16375

    @property
    def ngram_heads(self) -> int:
        return (self.ngram_size - 1) * self.heads_per_ngram

    @property
    def ngram_row_width(self) -> int:
        return self.ple_embed_dim // self.ngram_heads

    def is_attention(self, layer: int) -> bool:
        return (layer + 1) % self.full_attention_interval == 0

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> ModelConfig:
        return cls(**json.loads(path.read_text()))

    def replace(self, overrides: dict[str, Any]) -> ModelConfig:
        """A copy with the given fields; values may be text, as they come from the command line."""
        kinds = {f.name: type(f.default) for f in fields(self)}
        unknown = sorted(set(overrides) - set(kinds))
        if unknown:
            raise SystemExit(f"unknown model setting {', '.join(unknown)}; known: {', '.join(kinds)}")
        return ModelConfig(**{**asdict(self), **{k: kinds[k](v) for k, v in overrides.items()}})

    def transformers_settings(self) -> dict[str, Any]:
        """The keyword arguments of `transformers.Qwen4ExpTextConfig` for the same model (without the MTP layer)."""
        same = [
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "rms_norm_eps",
            "max_position_embeddings",
            "linear_num_key_heads",
            "linear_num_value_heads",
            "linear_conv_kernel_dim",
            "num_experts",
            "num_experts_per_tok",
            "moe_intermediate_size",
            "shared_expert_intermediate_size",
            "hc_count",
            "hc_lowrank",
            "indexer_n_heads",
            "indexer_head_dim",
            "indexer_budget",
            "indexer_compress_ratio",
            "ple_embed_dim",
            "ple_conv_kernel_size",
            "ngram_size",
            "heads_per_ngram",
            "ngram_vocab_size_base",
            "eos_token_id",
            "pad_token_id",
        ]
        rotary = self.rotary_dim / self.head_dim
        rope = {"rope_type": "default", "rope_theta": self.rope_theta, "partial_rotary_factor": rotary}
        return {
            **{name: getattr(self, name) for name in same},
            "full_attention_interval": self.full_attention_interval,
            "linear_key_head_dim": self.linear_head_dim,
            "linear_value_head_dim": self.linear_head_dim,
            "indexer_kv_heads": 1,
            "ple_layer_ids": [self.ple_layer + 1],
            "seed": self.ngram_seed,
            "output_gate_type": "sigmoid",
            "norm_topk_prob": True,
            "tie_word_embeddings": True,
            "rope_parameters": {**rope, "mrope_section": list(self.rope_sections()), "mrope_interleaved": True},
        }

    def rope_sections(self) -> tuple[int, int, int]:
        """How the rotary pairs divide over time, height and width; text gives all three the same position."""
        pairs = self.rotary_dim // 2
        return pairs - 2 * (pairs // 3), pairs // 3, pairs // 3


def ngram_head_sizes(config: ModelConfig) -> list[int]:
    """Rows of each n-gram head's table: the successive primes from `ngram_vocab_size_base` on."""
    sizes: list[int] = []
    candidate = max(config.ngram_vocab_size_base, 2)
    while len(sizes) < config.ngram_heads:
        if all(candidate % d for d in range(2, int(candidate**0.5) + 1)):
            sizes.append(candidate)
        candidate += 1
    return sizes


def ngram_table_rows(config: ModelConfig) -> int:
    """Rows of the whole table, padded to a multiple of 128 as the published checkpoints are."""
    return -(-sum(ngram_head_sizes(config)) // 128) * 128


def ngram_multipliers(config: ModelConfig) -> list[int]:
    """The odd 63-bit multipliers of the n-gram hash: splitmix64 of the seed, bounded so that a product cannot wrap."""
    bound = max(1, ((1 << 63) - 1) // config.vocab_size // 2)
    multipliers = []
    for index in range(config.ngram_size):
        z = (config.ngram_seed + 0x9E3779B97F4A7C15 * (index + 2)) & _MASK64
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
        multipliers.append(2 * ((z ^ (z >> 31)) % bound) + 1)
    return multipliers
