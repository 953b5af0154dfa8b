"""How a safetensors checkpoint of qwen4_exp becomes the canonical (GGUF) tensors: names, and the transforms between.

Transforms (facts of the GGUF form): a norm's gamma is 1 + w, except the delta net's gated norm; ssm_a = -exp(A_log);
convolutions lose their middle axis; value heads go from grouped (all of key head 0, ...) to tiled order (value head 0
of every key head, then 1, ...); MTP's two input projections stand side by side.
"""

import re
from collections.abc import Callable, Iterable
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from strata.families.qwen4_exp.spec import DeltaSpec, Spec
from strata.families.source import Rule, SafetensorsSource, TensorData

Rules = dict[str, tuple[tuple[str, ...], Rule]]
Change = Callable[[npt.NDArray[np.generic]], npt.NDArray[np.generic]]
WORDS: dict[str, type[np.unsignedinteger]] = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}


def rules(spec: Spec, names: Iterable[str]) -> Rules:
    """The rule of every canonical tensor, for a checkpoint that holds the tensors `names`."""
    names = set(names)
    prefix = next(
        (
            p
            for p in ("model.language_model.", "language_model.model.", "model.", "")
            if f"{p}embed_tokens.weight" in names
        ),
        "model.",
    )
    out: Rules = {}
    out["token_embd.weight"] = _same(f"{prefix}embed_tokens.weight")
    out["output.weight"] = _same("lm_head.weight")
    _mixer(out, "output_hc", f"{prefix}hyper_connection_mixer")
    for layer, kind in enumerate(spec.kinds):
        block, source = f"blk.{layer}.", f"{prefix}layers.{layer}."
        (_delta if kind == "delta" else _attention)(out, block, source, spec)
        _rest(out, block, source, spec, names)
        if spec.ngram is not None and layer == spec.ngram.layer:
            _ngram(out, block, source, names)
    for layer in range(spec.layers, spec.layers + spec.mtp_layers):
        block, source = f"blk.{layer}.", "mtp.layers.0."
        _attention(out, block, source, spec)
        _rest(out, block, source, spec, names)
        _norm(out, f"{block}nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight")
        _norm(out, f"{block}nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight")
        halves = ("mtp.fc_embedding.weight", "mtp.fc_hidden.weight")
        out[f"{block}nextn.eh_proj.weight"] = (halves, lambda s, h=halves: _side_by_side(s, h))  # type: ignore[misc]
        _mixer(out, f"{block}nextn.hc_head", "mtp.hyper_connection_mixer")
    return out


def _same(name: str, change: Change | None = None) -> tuple[tuple[str, ...], Rule]:
    """A tensor taken as it is, or with its elements moved by `change` (which must not compute on them)."""

    def rule(source: SafetensorsSource) -> TensorData:
        data = source.read(name)
        if change is None:
            return data
        words = data.raw.view(WORDS[data.format]).reshape(data.shape)
        moved = np.ascontiguousarray(change(words))
        return TensorData(data.format, moved.reshape(-1).view(np.uint8), moved.shape)

    return (name,), rule


def _floats(
    name: str, change: Callable[[npt.NDArray[np.float32]], npt.NDArray[np.generic]]
) -> tuple[tuple[str, ...], Rule]:
    """A small tensor read as fp32 and computed on."""
    return (name,), lambda source: TensorData.of_floats(change(source.read(name).floats()))


def _norm(out: Rules, name: str, source: str) -> None:
    out[name] = _floats(source, lambda w: np.float32(1) + w)


def _mixer(out: Rules, prefix: str, source: str) -> None:
    _norm(out, f"{prefix}_norm.weight", f"{source}.hc_norm.weight")
    out[f"{prefix}_down.weight"] = _same(f"{source}.input_mix_weight_down.weight")
    out[f"{prefix}_up.weight"] = _same(f"{source}.input_mix_weight_up.weight")


def tiled_order(d: DeltaSpec) -> npt.NDArray[np.int64]:
    """The grouped index of each value head in tiled order: head r of key head g stands at r * key_heads + g."""
    return np.arange(d.value_heads).reshape(d.key_heads, d.value_heads // d.key_heads).T.reshape(-1)


def _delta(out: Rules, block: str, source: str, spec: Spec) -> None:
    d, at = spec.delta, f"{source}linear_attn."
    heads = tiled_order(d)
    values = (heads[:, None] * d.value_dim + np.arange(d.value_dim)).reshape(-1)
    mixed = np.concatenate([np.arange(2 * d.key_width), 2 * d.key_width + values])
    out[f"{block}attn_qkv.weight"] = _same(f"{at}in_proj_qkv.weight", lambda w: w[mixed])
    out[f"{block}attn_gate.weight"] = _same(f"{at}in_proj_z.weight", lambda w: w[values])
    out[f"{block}ssm_alpha.weight"] = _same(f"{at}in_proj_a.weight", lambda w: w[heads])
    out[f"{block}ssm_beta.weight"] = _same(f"{at}in_proj_b.weight", lambda w: w[heads])
    out[f"{block}ssm_a"] = _floats(f"{at}A_log", lambda w: _minus_exp(w[heads]))
    out[f"{block}ssm_dt.bias"] = _floats(f"{at}dt_bias", lambda w: w[heads])
    out[f"{block}ssm_conv1d.weight"] = _same(f"{at}conv1d.weight", lambda w: w[mixed].reshape(len(mixed), -1))
    out[f"{block}ssm_norm.weight"] = _floats(f"{at}norm.weight", lambda w: w)
    out[f"{block}ssm_out.weight"] = _same(f"{at}out_proj.weight", lambda w: w[:, values])


def _minus_exp(x: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """-exp(x) by decimal arithmetic, so that every machine makes the same model of a checkpoint."""
    return np.array([-float(Decimal(float(value)).exp()) for value in x], np.float64)


def _attention(out: Rules, block: str, source: str, spec: Spec) -> None:
    at = f"{source}self_attn."
    for name, theirs in (("attn_q", "q_proj"), ("attn_k", "k_proj"), ("attn_v", "v_proj"), ("attn_output", "o_proj")):
        out[f"{block}{name}.weight"] = _same(f"{at}{theirs}.weight")
    for name, theirs in (
        ("attn_q_norm", "q_norm"),
        ("attn_k_norm", "k_norm"),
        ("indexer.q_norm", "indexer.q_layernorm"),
        ("indexer.k_norm", "indexer.k_layernorm"),
    ):
        _norm(out, f"{block}{name}.weight", f"{at}{theirs}.weight")
    split = spec.attention.index_heads * spec.attention.index_dim
    out[f"{block}indexer.q_proj.weight"] = _same(f"{at}indexer.index_qk_proj.weight", lambda w: w[:split])
    out[f"{block}indexer.k_proj.weight"] = _same(f"{at}indexer.index_qk_proj.weight", lambda w: w[split:])


def _rest(out: Rules, block: str, source: str, spec: Spec, names: set[str]) -> None:
    for site, theirs in (("attn", "attn_hyper_connection"), ("ffn", "mlp_hyper_connection")):
        _mixer(out, f"{block}hc_{site}", f"{source}{theirs}")
        out[f"{block}hc_{site}_inject.weight"] = _same(f"{source}{theirs}.block_inject_weight.weight")
    at, width = f"{source}mlp.", spec.experts.width
    out[f"{block}ffn_gate_inp.weight"] = _same(f"{at}gate.weight")
    out[f"{block}ffn_gate_inp_shexp.weight"] = _same(f"{at}shared_expert_gate.weight")
    for part in ("gate", "up", "down"):
        out[f"{block}ffn_{part}_shexp.weight"] = _same(f"{at}shared_expert.{part}_proj.weight")
    if f"{at}experts.gate_up_proj" in names:
        out[f"{block}ffn_gate_exps.weight"] = _same(f"{at}experts.gate_up_proj", lambda w: w[:, :width])
        out[f"{block}ffn_up_exps.weight"] = _same(f"{at}experts.gate_up_proj", lambda w: w[:, width:])
        out[f"{block}ffn_down_exps.weight"] = _same(f"{at}experts.down_proj")
        return
    for part in ("gate", "up", "down"):
        parts = tuple(f"{at}experts.{e}.{part}_proj.weight" for e in range(spec.experts.count))
        out[f"{block}ffn_{part}_exps.weight"] = (parts, lambda s, p=parts: _stack(s, p))  # type: ignore[misc]


def _ngram(out: Rules, block: str, source: str, names: set[str]) -> None:
    at = f"{source}ple."
    out[f"{block}ple_key.weight"] = _same(f"{at}key_proj.weight")
    out[f"{block}ple_value.weight"] = _same(f"{at}value_proj.weight")
    out[f"{block}ple_conv1d.weight"] = _same(f"{at}conv1d.weight", lambda w: w.reshape(w.shape[0], -1))
    for which in ("key", "query", "conv"):
        _norm(out, f"{block}ple_norm_{which}.weight", f"{at}norm_{which}.weight")
    table = f"{at}ple_embedding.ngram_embedding"
    shards = sorted(
        (n for n in names if re.fullmatch(re.escape(table) + r"\.shard_\d+\.weight", n)),
        key=lambda n: int(n.rsplit("shard_", 1)[1].split(".")[0]),
    )
    parts = tuple(shards) if shards else (f"{table}.weight",)
    out["per_layer_token_embd.weight"] = (parts, lambda s: _concatenate(s, parts)) if shards else _same(parts[0])


def _concatenate(source: SafetensorsSource, parts: tuple[str, ...]) -> TensorData:
    pieces = [source.read(part) for part in parts]
    raw = np.concatenate([piece.raw for piece in pieces])
    return TensorData(pieces[0].format, raw, (sum(p.shape[0] for p in pieces), *pieces[0].shape[1:]))


def _stack(source: SafetensorsSource, parts: tuple[str, ...]) -> TensorData:
    joined = _concatenate(source, parts)
    return TensorData(joined.format, joined.raw, (len(parts), joined.shape[0] // len(parts), *joined.shape[1:]))


def _side_by_side(source: SafetensorsSource, parts: tuple[str, ...]) -> TensorData:
    left, right = (source.read(part).floats() for part in parts)
    return TensorData.of_floats(np.concatenate([left, right], axis=1))
