"""How checkpoint tensors become GGUF tensors of the arch `qwen4exp`, and back.

Facts of the format: names and transforms as llama.cpp's converter writes them (norm weights as 1 + w, `ssm_a` as
-exp(A_log), value heads reordered from grouped to tiled, convolutions squeezed, fused projections split).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .config import ModelConfig

Array = npt.NDArray[np.float32]
Change = Callable[[Array], Array]


def _same(x: Array) -> Array:
    return x


@dataclass
class Entry:
    """GGUF tensor `name` = forth(rows start..stop of `source` along `axis`); back undoes it."""

    name: str
    source: str
    forth: Change = _same
    back: Change = _same
    start: int = 0
    stop: int | None = None
    axis: int = 0

    def pick(self, x: Array) -> Array:
        return x[(slice(None),) * self.axis + (slice(self.start, self.stop),)]


def _norm(name: str, source: str) -> Entry:
    return Entry(name, source, lambda x: 1 + x, lambda x: x - 1)


def tiled_order(config: ModelConfig, width: int) -> npt.NDArray[np.int64]:
    """Indices that take value heads (of `width` rows each) from grouped order to tiled order."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads
    heads = np.arange(values).reshape(keys, values // keys).T.ravel()
    return (heads[:, None] * width + np.arange(width)).ravel()


def _reorder(order: npt.NDArray[np.int64], axis: int = 0) -> tuple[Change, Change]:
    return (lambda x: np.take(x, order, axis)), (lambda x: np.take(x, np.argsort(order), axis))


def _hyper(block: str, source: str, inject: bool = True) -> Iterator[Entry]:
    yield _norm(f"{block}_norm.weight", f"{source}.hc_norm.weight")
    yield Entry(f"{block}_down.weight", f"{source}.input_mix_weight_down.weight")
    yield Entry(f"{block}_up.weight", f"{source}.input_mix_weight_up.weight")
    if inject:
        yield Entry(f"{block}_inject.weight", f"{source}.block_inject_weight.weight")


def _delta(config: ModelConfig, b: str, s: str) -> Iterator[Entry]:
    width, keys = config.linear_head_dim, 2 * config.linear_num_key_heads * config.linear_head_dim
    rows, heads = tiled_order(config, width), tiled_order(config, 1)
    qkv = np.concatenate([np.arange(keys), keys + rows])
    yield Entry(f"{b}.attn_qkv.weight", f"{s}.in_proj_qkv.weight", *_reorder(qkv))
    yield Entry(f"{b}.attn_gate.weight", f"{s}.in_proj_z.weight", *_reorder(rows))
    yield Entry(f"{b}.ssm_alpha.weight", f"{s}.in_proj_a.weight", *_reorder(heads))
    yield Entry(f"{b}.ssm_beta.weight", f"{s}.in_proj_b.weight", *_reorder(heads))
    forth, back = _reorder(heads)
    yield Entry(f"{b}.ssm_a", f"{s}.A_log", lambda x: -np.exp(forth(x)), lambda x: back(np.log(-x)))
    yield Entry(f"{b}.ssm_dt.bias", f"{s}.dt_bias", forth, back)
    order = qkv
    yield Entry(
        f"{b}.ssm_conv1d.weight", f"{s}.conv1d.weight", lambda x: x[order, 0], lambda x: x[np.argsort(order), None]
    )
    yield Entry(f"{b}.ssm_norm.weight", f"{s}.norm.weight")
    yield Entry(f"{b}.ssm_out.weight", f"{s}.out_proj.weight", *_reorder(rows, 1))


def _attention(config: ModelConfig, b: str, s: str) -> Iterator[Entry]:
    for ours, theirs in (("attn_q", "q_proj"), ("attn_k", "k_proj"), ("attn_v", "v_proj"), ("attn_output", "o_proj")):
        yield Entry(f"{b}.{ours}.weight", f"{s}.{theirs}.weight")
    yield _norm(f"{b}.attn_q_norm.weight", f"{s}.q_norm.weight")
    yield _norm(f"{b}.attn_k_norm.weight", f"{s}.k_norm.weight")
    cut = config.indexer_n_heads * config.indexer_head_dim
    yield Entry(f"{b}.indexer.q_proj.weight", f"{s}.indexer.index_qk_proj.weight", stop=cut)
    yield Entry(f"{b}.indexer.k_proj.weight", f"{s}.indexer.index_qk_proj.weight", start=cut)
    yield _norm(f"{b}.indexer.q_norm.weight", f"{s}.indexer.q_layernorm.weight")
    yield _norm(f"{b}.indexer.k_norm.weight", f"{s}.indexer.k_layernorm.weight")


def _experts(config: ModelConfig, b: str, s: str) -> Iterator[Entry]:
    cut = config.moe_intermediate_size
    yield Entry(f"{b}.ffn_gate_inp.weight", f"{s}.gate.weight")
    yield Entry(f"{b}.ffn_gate_exps.weight", f"{s}.experts.gate_up_proj", stop=cut, axis=1)
    yield Entry(f"{b}.ffn_up_exps.weight", f"{s}.experts.gate_up_proj", start=cut, axis=1)
    yield Entry(f"{b}.ffn_down_exps.weight", f"{s}.experts.down_proj")
    yield Entry(f"{b}.ffn_gate_inp_shexp.weight", f"{s}.shared_expert_gate.weight", lambda x: x[0], lambda x: x[None])
    for part in ("gate", "up", "down"):
        yield Entry(f"{b}.ffn_{part}_shexp.weight", f"{s}.shared_expert.{part}_proj.weight")


def _layer(config: ModelConfig, number: int, s: str, attention: bool, ple: bool) -> Iterator[Entry]:
    b = f"blk.{number}"
    yield from _hyper(f"{b}.hc_attn", f"{s}.attn_hyper_connection")
    yield from _hyper(f"{b}.hc_ffn", f"{s}.mlp_hyper_connection")
    yield from _attention(config, b, f"{s}.self_attn") if attention else _delta(config, b, f"{s}.linear_attn")
    yield from _experts(config, b, f"{s}.mlp")
    if ple:
        yield Entry("per_layer_token_embd.weight", f"{s}.ple.ple_embedding.ngram_embedding.weight")
        yield Entry(f"{b}.ple_key.weight", f"{s}.ple.key_proj.weight")
        yield Entry(f"{b}.ple_value.weight", f"{s}.ple.value_proj.weight")
        yield Entry(f"{b}.ple_conv1d.weight", f"{s}.ple.conv1d.weight", lambda x: x[:, 0], lambda x: x[:, None])
        for part in ("key", "query", "conv"):
            yield _norm(f"{b}.ple_norm_{part}.weight", f"{s}.ple.norm_{part}.weight")


def entries(config: ModelConfig) -> Iterator[Entry]:
    """Every tensor of the file but `nextn.eh_proj`, which joins two checkpoint tensors (see `EH_PROJ`)."""
    yield Entry("token_embd.weight", "model.embed_tokens.weight")
    yield from _hyper("output_hc", "model.hyper_connection_mixer", inject=False)
    for i in range(config.num_hidden_layers):
        yield from _layer(config, i, f"model.layers.{i}", config.is_attention(i), i == config.ple_layer)
    number = config.num_hidden_layers
    yield from _layer(config, number, "mtp.layers.0", attention=True, ple=False)
    yield _norm(f"blk.{number}.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight")
    yield _norm(f"blk.{number}.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight")
    yield from _hyper(f"blk.{number}.nextn.hc_head", "mtp.hyper_connection_mixer", inject=False)


EH_PROJ = ("mtp.fc_embedding.weight", "mtp.fc_hidden.weight")


def to_gguf(config: ModelConfig, weights: dict[str, Array]) -> dict[str, Array]:
    tensors = {e.name: e.forth(e.pick(weights[e.source])) for e in entries(config)}
    tensors[f"blk.{config.num_hidden_layers}.nextn.eh_proj.weight"] = np.concatenate([weights[n] for n in EH_PROJ], 1)
    return tensors


def from_gguf(config: ModelConfig, tensors: dict[str, Array], like: dict[str, Array]) -> dict[str, Array]:
    """Checkpoint tensors out of a file's; `like` gives the shapes."""
    weights = {name: np.empty(array.shape, np.float32) for name, array in like.items()}
    for entry in entries(config):
        entry.pick(weights[entry.source])[...] = entry.back(tensors[entry.name])
    joined = tensors[f"blk.{config.num_hidden_layers}.nextn.eh_proj.weight"]
    for name, half in zip(EH_PROJ, np.split(joined, 2, 1), strict=True):
        weights[name][...] = half
    return weights
