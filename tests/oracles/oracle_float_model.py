"""The float32 model of a qwen4_exp GGUF: `transformers`' modules with the weights that `gguf` dequantizes.

Nothing here comes from the package under test: the file is read by `gguf`, and its transforms are undone again.
`routing` gives every layer's experts instead of the model's own choice, so that two models whose routers differ on a
near tie can still be compared; `Router.margin` says how near the tie was.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from torch import nn
from transformers import Qwen4ExpForCausalLM, Qwen4ExpTextConfig
from transformers.models.qwen4_exp import modeling_qwen4_exp as theirs

ARCH = "qwen4exp."


class GgufValues:
    """The metadata and the float32 tensors of a GGUF file."""

    def __init__(self, path: Path) -> None:
        self._reader = gguf.GGUFReader(path)
        self._tensors = {t.name: t for t in self._reader.tensors}

    def get(self, key: str, default: Any = None) -> Any:
        """A metadata value by its full key."""
        found = self._reader.fields.get(key)
        return default if found is None else found.contents()

    def has(self, name: str) -> bool:
        """Whether the file holds the tensor."""
        return name in self._tensors

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor dequantized to float32, outermost dimension first."""
        t = self._tensors[name]
        values = gguf.quants.dequantize(t.data, t.tensor_type)
        return torch.from_numpy(np.array(values, np.float32).reshape([int(n) for n in reversed(t.shape)]))


@dataclass
class Router:
    """What a router chose, or is made to choose: experts (rows, k) of one layer."""

    forced: torch.Tensor | None = None
    chosen: torch.Tensor | None = None
    margin: float = 0.0  # how far the forced experts fall short of the best ones, in standard deviations of the logits

    def __call__(self, module: nn.Module, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        logits = nn.functional.linear(states.reshape(-1, module.hidden_dim), module.weight)
        best = torch.topk(logits, module.top_k, dim=-1)
        self.chosen = best.indices
        ids = best.indices if self.forced is None else self.forced
        picked = torch.gather(logits, 1, ids)
        short = (best.values[:, -1] - picked.min(1).values).clamp_min(0) / logits.std(1)
        self.margin = float(short.max())
        return logits, torch.softmax(picked, -1), ids


@dataclass
class FloatModel:
    """Logits of the trunk and of the MTP block in float32."""

    trunk: Qwen4ExpForCausalLM
    mtp: "MtpBlock | None"
    routers: list[Router] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> "FloatModel":
        """Build the model of a GGUF file."""
        values = GgufValues(path)
        trunk = Qwen4ExpForCausalLM(_config(values)).eval().float()
        _fill_trunk(trunk, values)
        mtp = MtpBlock.load(values, trunk) if values.get(f"{ARCH}nextn_predict_layers", 0) else None
        model = cls(trunk, mtp)
        for layer in [*trunk.model.layers, *([mtp.layer] if mtp else [])]:
            router = Router()
            layer.mlp.gate.forward = lambda states, m=layer.mlp.gate, r=router: r(m, states)
            model.routers.append(router)
        return model

    def force(self, routing: list[np.ndarray] | None) -> None:
        """Make every layer use the given experts (rows, k); None: its own choice."""
        for i, router in enumerate(self.routers):
            router.forced = None if routing is None else torch.from_numpy(np.ascontiguousarray(routing[i], np.int64))

    @torch.no_grad()
    def forward(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logits (T, V) and the streams (T, S, D) after the last layer."""
        caught: list[torch.Tensor] = []
        hook = self.trunk.model.hyper_connection_mixer.register_forward_pre_hook(lambda _, x: caught.append(x[0]))
        try:
            logits = self.trunk(torch.from_numpy(np.asarray(tokens, np.int64))[None], use_cache=False).logits[0]
        finally:
            hook.remove()
        return logits.numpy(), caught[0][0].reshape(len(tokens), self.trunk.config.hc_count, -1).numpy()

    @torch.no_grad()
    def draft(self, streams: np.ndarray, following: np.ndarray) -> np.ndarray:
        """The MTP block's logits (T, V) on the trunk's streams and the token after each; row i at position i."""
        assert self.mtp is not None
        e = self.trunk.model.embed_tokens(torch.from_numpy(np.asarray(following, np.int64)))[None]
        out = self.mtp(e, torch.from_numpy(streams.reshape(1, len(streams), -1)))
        return self.trunk.lm_head(out)[0].numpy()


class MtpBlock(nn.Module):
    """The multi-token-prediction block, of `transformers`' parts: one sparse layer between a projection and a mixer."""

    def __init__(self, config: Qwen4ExpTextConfig) -> None:
        super().__init__()
        wide = config.hc_count * config.hidden_size
        self.config, eps = config, config.rms_norm_eps
        self.embedding_norm = theirs.Qwen4ExpTextRMSNorm(config.hidden_size, eps=eps)
        self.hidden_norm = theirs.Qwen4ExpTextRMSNorm(wide, group_size=config.hidden_size, eps=eps)
        self.of_embedding = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.of_stream = nn.Linear(config.hidden_size, config.hidden_size, bias=False)
        self.layer = theirs.Qwen4ExpTextDecoderLayer(config, 0)
        self.mixer = theirs.Qwen4ExpTextGatedResidual(config, use_combine=False)

    @classmethod
    def load(cls, values: GgufValues, trunk: Qwen4ExpForCausalLM) -> "MtpBlock":
        """Build the block from the file's last block."""
        changed = {"num_hidden_layers": 1, "layer_types": ["indexed_attention"], "ple_layer_ids": []}
        config = Qwen4ExpTextConfig(**(trunk.config.to_dict() | changed))
        config._attn_implementation = trunk.config._attn_implementation
        block = cls(config).eval().float()
        at = f"blk.{trunk.config.num_hidden_layers}."
        fill = _Filler(values)
        fill.norm(block.embedding_norm, f"{at}nextn.enorm")
        fill.norm(block.hidden_norm, f"{at}nextn.hnorm")
        both = values.tensor(f"{at}nextn.eh_proj.weight")
        fill.put(block.of_embedding.weight, both[:, : config.hidden_size])
        fill.put(block.of_stream.weight, both[:, config.hidden_size :])
        fill.mixer(block.mixer, f"{at}nextn.hc_head")
        fill.layer(block.layer, at, config)
        block.rotary = trunk.model.rotary_emb
        return block

    def forward(self, embedded: torch.Tensor, streams: torch.Tensor) -> torch.Tensor:
        """Embeddings (1, T, D) of the next tokens and streams (1, T, S*D) to the mixed hidden state (1, T, D)."""
        count, width = embedded.shape[1], self.config.hidden_size
        h = self.hidden_norm(streams).unflatten(-1, (-1, width))
        e = self.of_embedding(self.embedding_norm(embedded))[..., None, :]
        x = (e + self.of_stream(h)).flatten(-2)
        positions = torch.arange(count)[None, None].expand(3, 1, -1)
        causal = torch.ones(count, count, dtype=torch.bool).tril()[None, None]
        x = self.layer(x, position_embeddings=self.rotary(x, positions), attention_mask=causal)
        return self.mixer(x)


def _config(values: GgufValues) -> Qwen4ExpTextConfig:
    def fact(key: str) -> Any:
        return values.get(ARCH + key)

    mtp = fact("nextn_predict_layers") or 0
    layers = fact("block_count") - mtp
    head_dim = fact("attention.key_length")
    offsets, sizes = fact("ple.head_offsets"), fact("ple.head_vocab_sizes")
    ngrams = {}
    if offsets:
        ngrams = {
            "ple_layer_ids": [i + 1 for i in fact("ple.layers")],
            "ple_embed_dim": fact("embedding_length_per_layer_input") * len(offsets),
            "ple_conv_kernel_size": fact("ple.conv_kernel"),
            "ngram_size": fact("ple.ngram_size"),
            "heads_per_ngram": fact("ple.heads_per_ngram"),
            "ngram_vocab_size_base": min(sizes),
            "split_ngram_parts": 1,
            "eos_token_id": fact("ple.eos_token_id"),
        }
    return Qwen4ExpTextConfig(
        vocab_size=values.tensor("token_embd.weight").shape[0],
        hidden_size=fact("embedding_length"),
        num_hidden_layers=layers,
        layer_types=[
            "linear_attention" if (i + 1) % fact("full_attention_interval") else "indexed_attention"
            for i in range(layers)
        ],
        num_attention_heads=fact("attention.head_count"),
        num_key_value_heads=fact("attention.head_count_kv"),
        head_dim=head_dim,
        rms_norm_eps=fact("attention.layer_norm_rms_epsilon"),
        linear_conv_kernel_dim=fact("ssm.conv_kernel"),
        linear_key_head_dim=fact("ssm.state_size"),
        linear_value_head_dim=fact("ssm.inner_size") // fact("ssm.time_step_rank"),
        linear_num_key_heads=fact("ssm.group_count"),
        linear_num_value_heads=fact("ssm.time_step_rank"),
        moe_intermediate_size=fact("expert_feed_forward_length"),
        shared_expert_intermediate_size=fact("expert_shared_feed_forward_length"),
        num_experts=fact("expert_count"),
        num_experts_per_tok=fact("expert_used_count"),
        hc_count=fact("hyper_connection.count"),
        hc_lowrank=fact("hyper_connection.low_rank"),
        indexer_n_heads=fact("attention.indexer.head_count"),
        indexer_kv_heads=1,
        indexer_head_dim=fact("attention.indexer.key_length"),
        indexer_budget=fact("attention.indexer.top_k"),
        indexer_compress_ratio=max(fact("attention.compress_ratios")),
        output_gate_type="sigmoid",
        max_position_embeddings=fact("context_length"),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": fact("rope.freq_base"),
            "partial_rotary_factor": fact("rope.dimension_count") / head_dim,
            "mrope_section": fact("rope.dimension_sections")[:3],
        },
        **ngrams,
    )


class _Filler:
    """Copies the tensors of a GGUF block into modules, undoing the form of the file."""

    def __init__(self, values: GgufValues) -> None:
        self.values = values

    @staticmethod
    def put(parameter: torch.Tensor, value: torch.Tensor) -> None:
        with torch.no_grad():
            parameter.copy_(value.reshape(parameter.shape) if value.ndim == 1 else value)

    def plain(self, module: nn.Module, name: str) -> None:
        self.put(module.weight, self.values.tensor(f"{name}.weight"))

    def norm(self, module: nn.Module, name: str) -> None:
        self.put(module.weight, self.values.tensor(f"{name}.weight") - 1)

    def mixer(self, module: nn.Module, prefix: str) -> None:
        self.norm(module.hc_norm, f"{prefix}_norm")
        self.plain(module.input_mix_weight_down, f"{prefix}_down")
        self.plain(module.input_mix_weight_up, f"{prefix}_up")
        if module.block_inject_weight is not None:
            self.plain(module.block_inject_weight, f"{prefix}_inject")

    def layer(self, module: nn.Module, at: str, config: Qwen4ExpTextConfig) -> None:
        self.mixer(module.attn_hyper_connection, f"{at}hc_attn")
        self.mixer(module.mlp_hyper_connection, f"{at}hc_ffn")
        if module.layer_type == "linear_attention":
            self._delta(module.linear_attn, at, config)
        else:
            self._attention(module.self_attn, at)
        self._experts(module.mlp, at)
        if module.ple is not None:
            self._ngram(module.ple, at)

    def _attention(self, module: nn.Module, at: str) -> None:
        for ours, name in (("q_proj", "attn_q"), ("k_proj", "attn_k"), ("v_proj", "attn_v"), ("o_proj", "attn_output")):
            self.plain(getattr(module, ours), at + name)
        self.norm(module.q_norm, f"{at}attn_q_norm")
        self.norm(module.k_norm, f"{at}attn_k_norm")
        parts = [self.values.tensor(f"{at}indexer.{which}_proj.weight") for which in ("q", "k")]
        self.put(module.indexer.index_qk_proj.weight, torch.cat(parts))
        self.norm(module.indexer.q_layernorm, f"{at}indexer.q_norm")
        self.norm(module.indexer.k_layernorm, f"{at}indexer.k_norm")

    def _delta(self, module: nn.Module, at: str, config: Qwen4ExpTextConfig) -> None:
        get = self.values.tensor
        keys, repeats = config.linear_num_key_heads, config.linear_num_value_heads // config.linear_num_key_heads

        def grouped(x: torch.Tensor) -> torch.Tensor:
            """Rows of value heads, from head r of every key head, then r + 1, to one key head after the other."""
            return x.unflatten(0, (repeats, keys, -1)).transpose(0, 1).flatten(0, 2)

        split = 2 * config.linear_key_head_dim * keys
        qkv, conv = get(f"{at}attn_qkv.weight"), get(f"{at}ssm_conv1d.weight")
        self.put(module.in_proj_qkv.weight, torch.cat([qkv[:split], grouped(qkv[split:])]))
        self.put(module.conv1d.weight, torch.cat([conv[:split], grouped(conv[split:])])[:, None])
        self.put(module.in_proj_z.weight, grouped(get(f"{at}attn_gate.weight")))
        self.put(module.in_proj_a.weight, grouped(get(f"{at}ssm_alpha.weight")))
        self.put(module.in_proj_b.weight, grouped(get(f"{at}ssm_beta.weight")))
        self.put(module.A_log, torch.log(-grouped(get(f"{at}ssm_a"))))
        self.put(module.dt_bias, grouped(get(f"{at}ssm_dt.bias")))
        self.put(module.norm.weight, get(f"{at}ssm_norm.weight"))
        self.put(module.out_proj.weight, grouped(get(f"{at}ssm_out.weight").T).T)

    def _experts(self, module: nn.Module, at: str) -> None:
        get = self.values.tensor
        self.plain(module.gate, f"{at}ffn_gate_inp")
        self.plain(module.shared_expert_gate, f"{at}ffn_gate_inp_shexp")
        both = torch.cat([get(f"{at}ffn_{part}_exps.weight") for part in ("gate", "up")], dim=1)
        self.put(module.experts.gate_up_proj, both)
        self.put(module.experts.down_proj, get(f"{at}ffn_down_exps.weight"))
        for part in ("gate", "up", "down"):
            self.plain(getattr(module.shared_expert, f"{part}_proj"), f"{at}ffn_{part}_shexp")

    def _ngram(self, module: nn.Module, at: str) -> None:
        get, table = self.values.tensor, module.ple_embedding
        self.plain(module.key_proj, f"{at}ple_key")
        self.plain(module.value_proj, f"{at}ple_value")
        for which in ("key", "query", "conv"):
            self.norm(getattr(module, f"norm_{which}"), f"{at}ple_norm_{which}")
        self.put(module.conv1d.weight, get(f"{at}ple_conv1d.weight")[:, None])
        for buffer, key in (
            (table.layer_multipliers, "layer_multipliers"),
            (table.ngram_heads_offsets, "head_offsets"),
            (table.ngram_heads_vocab_sizes, "head_vocab_sizes"),
        ):
            buffer.copy_(torch.tensor(self.values.get(f"{ARCH}ple.{key}"), dtype=torch.long))
        rows = get("per_layer_token_embd.weight")
        table.ngram_embedding = nn.Embedding(*rows.shape, _weight=rows)


def _fill_trunk(trunk: Qwen4ExpForCausalLM, values: GgufValues) -> None:
    fill = _Filler(values)
    fill.plain(trunk.model.embed_tokens, "token_embd")
    fill.plain(trunk.lm_head, "output" if values.has("output.weight") else "token_embd")
    fill.mixer(trunk.model.hyper_connection_mixer, "output_hc")
    for i, layer in enumerate(trunk.model.layers):
        fill.layer(layer, f"blk.{i}.", trunk.config)
