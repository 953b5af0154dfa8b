"""Every tensor of a qwen4_exp model: its GGUF name, the part it belongs to, its shape (outermost dimension first)."""

from collections.abc import Iterator
from dataclasses import dataclass

from strata.families.qwen4_exp.spec import Spec


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor the family needs; `rows_at_least` stands for a first dimension that may be larger."""

    name: str
    part: str
    shape: tuple[int, ...]
    optional: bool = False
    rows_at_least: bool = False


def tensors(spec: Spec) -> list[Tensor]:
    """The whole table for a spec, in the order of the forward pass."""
    return list(_all(spec))


def _all(s: Spec) -> Iterator[Tensor]:
    wide = s.streams * s.hidden
    yield Tensor("token_embd.weight", "embeddings", (s.vocab_size, s.hidden))
    yield Tensor("output.weight", "embeddings", (s.vocab_size, s.hidden), optional=True)
    yield from _mixer("output_hc", s)
    if s.ngram is not None:
        rows = s.ngram.rows or max(o + n for o, n in zip(s.ngram.offsets, s.ngram.sizes, strict=True))
        yield Tensor("per_layer_token_embd.weight", "n-gram table", (rows, s.ngram.row_width), rows_at_least=True)
    for layer, kind in enumerate(s.kinds):
        block = f"blk.{layer}."
        if s.ngram is not None and layer == s.ngram.layer:
            for name, shape in (
                ("ple_key.weight", (wide, s.ngram.embed_width)),
                ("ple_value.weight", (s.hidden, s.ngram.embed_width)),
                ("ple_conv1d.weight", (wide, s.ngram.conv_taps)),
                ("ple_norm_key.weight", (wide,)),
                ("ple_norm_query.weight", (wide,)),
                ("ple_norm_conv.weight", (wide,)),
            ):
                yield Tensor(block + name, "n-gram layer", shape)
        yield from _delta(block, s) if kind == "delta" else _attention(block, s, "attention")
        yield from _rest(block, s, "")
    for layer in range(s.layers, s.layers + s.mtp_layers):
        block = f"blk.{layer}."
        yield from _attention(block, s, "MTP")
        yield from _rest(block, s, "MTP")
        yield Tensor(block + "nextn.enorm.weight", "MTP", (s.hidden,))
        yield Tensor(block + "nextn.hnorm.weight", "MTP", (wide,))
        yield Tensor(block + "nextn.eh_proj.weight", "MTP", (s.hidden, 2 * s.hidden))
        yield from _mixer(block + "nextn.hc_head", s, "MTP")


def _mixer(prefix: str, s: Spec, part: str = "hyper-connections") -> Iterator[Tensor]:
    wide = s.streams * s.hidden
    yield Tensor(f"{prefix}_norm.weight", part, (wide,))
    yield Tensor(f"{prefix}_down.weight", part, (s.rank, wide))
    yield Tensor(f"{prefix}_up.weight", part, (wide, s.rank))


def _delta(block: str, s: Spec) -> Iterator[Tensor]:
    d = s.delta
    for name, shape in (
        ("attn_qkv.weight", (d.conv_width, s.hidden)),
        ("attn_gate.weight", (d.value_width, s.hidden)),
        ("ssm_alpha.weight", (d.value_heads, s.hidden)),
        ("ssm_beta.weight", (d.value_heads, s.hidden)),
        ("ssm_a", (d.value_heads,)),
        ("ssm_dt.bias", (d.value_heads,)),
        ("ssm_conv1d.weight", (d.conv_width, d.conv_taps)),
        ("ssm_norm.weight", (d.value_dim,)),
        ("ssm_out.weight", (s.hidden, d.value_width)),
    ):
        yield Tensor(block + name, "delta", shape)


def _attention(block: str, s: Spec, part: str) -> Iterator[Tensor]:
    a = s.attention
    q, kv = a.heads * a.head_dim, a.kv_heads * a.head_dim
    for name, shape in (
        ("attn_q.weight", (2 * q, s.hidden)),
        ("attn_k.weight", (kv, s.hidden)),
        ("attn_v.weight", (kv, s.hidden)),
        ("attn_output.weight", (s.hidden, q)),
        ("attn_q_norm.weight", (a.head_dim,)),
        ("attn_k_norm.weight", (a.head_dim,)),
    ):
        yield Tensor(block + name, part, shape)
    dense = s.ratios[int(block.split(".")[1])] == 0
    for name, shape in (
        ("indexer.q_proj.weight", (a.index_heads * a.index_dim, s.hidden)),
        ("indexer.k_proj.weight", (a.index_dim, s.hidden)),
        ("indexer.q_norm.weight", (a.index_dim,)),
        ("indexer.k_norm.weight", (a.index_dim,)),
    ):
        yield Tensor(block + name, part, shape, optional=dense)


def _rest(block: str, s: Spec, part: str) -> Iterator[Tensor]:
    e, wide = s.experts, s.streams * s.hidden
    for site in ("attn", "ffn"):
        yield from _mixer(f"{block}hc_{site}", s, part or "hyper-connections")
        yield Tensor(f"{block}hc_{site}_inject.weight", part or "hyper-connections", (s.streams, wide))
    yield Tensor(block + "ffn_gate_inp.weight", part or "router", (e.count, s.hidden))
    yield Tensor(block + "ffn_gate_inp_shexp.weight", part or "shared expert", (1, s.hidden))
    for name, n, k in (
        ("gate", e.shared_width, s.hidden),
        ("up", e.shared_width, s.hidden),
        ("down", s.hidden, e.shared_width),
    ):
        yield Tensor(f"{block}ffn_{name}_shexp.weight", part or "shared expert", (n, k))
    for name, n, k in (("gate", e.width, s.hidden), ("up", e.width, s.hidden), ("down", s.hidden, e.width)):
        yield Tensor(f"{block}ffn_{name}_exps.weight", part or "experts", (e.count, n, k))
