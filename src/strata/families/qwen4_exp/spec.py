"""The facts of one qwen4_exp model (Qwen3.8-Flash-Next) as data, from GGUF metadata or config.json."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strata.errors import FamilyError
from strata.families.reading import Reader

ARCHITECTURE = "qwen4exp"
MODEL_TYPES = ("qwen4_exp", "qwen4_exp_text")


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Sparse attention: heads, key/value heads, head width, rotary part; the indexer's heads, width and budget."""

    heads: int
    kv_heads: int
    head_dim: int
    rope_dim: int
    rope_base: float
    index_heads: int
    index_dim: int
    index_budget: int  # tokens in complete blocks that a row may attend to


@dataclass(frozen=True, slots=True)
class DeltaSpec:
    """Gated delta net: key and value heads, their widths, conv taps, and the output gate's activation."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_taps: int
    gate: str  # "sigmoid" or "silu"

    @property
    def key_width(self) -> int:
        """Width of all key (or query) heads."""
        return self.key_heads * self.key_dim

    @property
    def value_width(self) -> int:
        """Width of all value heads."""
        return self.value_heads * self.value_dim

    @property
    def conv_width(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return 2 * self.key_width + self.value_width


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """Routed experts and the shared one."""

    count: int
    used: int
    width: int
    shared_width: int


@dataclass(frozen=True, slots=True)
class NgramSpec:
    """The n-gram table: layer it feeds, order, heads an order, row width, hashing constants, and its convolution."""

    layer: int
    order: int
    heads: int  # heads an n-gram order
    row_width: int
    conv_taps: int
    eos: int
    multipliers: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    rows: int | None  # of the table; None: whatever the file holds

    @property
    def embed_width(self) -> int:
        """Width of a token's concatenated rows."""
        return self.row_width * self.heads * (self.order - 1)


@dataclass(frozen=True, slots=True)
class Spec:
    """Everything the forward pass must know of a qwen4_exp model besides its weights."""

    name: str
    vocab_size: int
    context_length: int
    hidden: int
    eps: float
    kinds: tuple[str, ...]  # "delta" or "sparse", one a trunk layer
    ratios: tuple[int, ...]  # compress ratio of each block, MTP included; 0: dense attention
    mtp_layers: int
    streams: int
    rank: int
    attention: AttentionSpec
    delta: DeltaSpec
    experts: ExpertSpec
    ngram: NgramSpec | None

    @property
    def layers(self) -> int:
        """Trunk layers."""
        return len(self.kinds)


def from_gguf(metadata: Mapping[str, Any], vocab_size: int) -> Spec:
    """The spec of a GGUF file from its metadata; `vocab_size` of token_embd. FamilyError names a bad or missing key."""
    read = Reader(metadata, f"{ARCHITECTURE}.", "GGUF metadata")
    read.refuse("rope.scaling.type", allowed=("none",), why="rope scaling is not implemented")
    blocks, mtp = read.count("block_count"), read.count("nextn_predict_layers", 0, least=0)
    if mtp not in (0, 1) or mtp >= blocks:
        raise FamilyError(
            f"{ARCHITECTURE}.nextn_predict_layers is {mtp} of {blocks} blocks; 0 or 1 MTP block is implemented."
        )
    interval = read.count("full_attention_interval", 4)
    layers = blocks - mtp
    kinds = tuple("sparse" if (i + 1) % interval == 0 else "delta" for i in range(layers))
    ratios = read.integers("attention.compress_ratios", count=blocks)
    value_heads, inner = read.count("ssm.time_step_rank"), read.count("ssm.inner_size")
    if inner % value_heads:
        raise FamilyError(f"{ARCHITECTURE}.ssm.inner_size {inner} is not a multiple of the {value_heads} value heads.")
    head_dim = read.count("attention.key_length")
    spec = Spec(
        name=str(metadata.get("general.name") or metadata.get("general.basename") or ARCHITECTURE),
        vocab_size=vocab_size,
        context_length=read.count("context_length"),
        hidden=read.count("embedding_length"),
        eps=read.number("attention.layer_norm_rms_epsilon"),
        kinds=kinds,
        ratios=ratios,
        mtp_layers=mtp,
        streams=read.count("hyper_connection.count"),
        rank=read.count("hyper_connection.low_rank"),
        attention=AttentionSpec(
            heads=read.count("attention.head_count"),
            kv_heads=read.count("attention.head_count_kv"),
            head_dim=head_dim,
            rope_dim=read.count("rope.dimension_count"),
            rope_base=read.number("rope.freq_base"),
            index_heads=read.count("attention.indexer.head_count"),
            index_dim=read.count("attention.indexer.key_length"),
            index_budget=read.count("attention.indexer.top_k"),
        ),
        delta=DeltaSpec(
            key_heads=read.count("ssm.group_count"),
            value_heads=value_heads,
            key_dim=read.count("ssm.state_size"),
            value_dim=inner // value_heads,
            conv_taps=read.count("ssm.conv_kernel"),
            gate="sigmoid",
        ),
        experts=ExpertSpec(
            count=read.count("expert_count"),
            used=read.count("expert_used_count"),
            width=read.count("expert_feed_forward_length"),
            shared_width=read.count("expert_shared_feed_forward_length"),
        ),
        ngram=_ngram_from_gguf(read, layers),
    )
    if read.count("attention.value_length", head_dim) != head_dim:
        raise FamilyError(f"{ARCHITECTURE}.attention.value_length must equal key_length ({head_dim}).")
    return check(spec)


def _ngram_from_gguf(read: Reader, layers: int) -> NgramSpec | None:
    where = read.integers("ple.layers", default=())
    if not where:
        return None
    if len(where) != 1 or not 0 <= where[0] < layers:
        raise FamilyError(f"{ARCHITECTURE}.ple.layers is {list(where)}; one trunk layer below {layers} is implemented.")
    order, heads = read.count("ple.ngram_size", least=2), read.count("ple.heads_per_ngram")
    total = (order - 1) * heads
    return NgramSpec(
        layer=where[0],
        order=order,
        heads=heads,
        row_width=read.count("embedding_length_per_layer_input"),
        conv_taps=read.count("ple.conv_kernel"),
        eos=read.count("ple.eos_token_id", least=0),
        multipliers=read.integers("ple.layer_multipliers", count=order),
        offsets=read.integers("ple.head_offsets", count=total),
        sizes=read.integers("ple.head_vocab_sizes", count=total),
        rows=None,
    )


def from_config(config: Mapping[str, Any]) -> Spec:
    """The spec of a checkpoint from its config.json (its text part). FamilyError names what is not implemented."""
    text = config.get("text_config") or config
    read = Reader(text, "", "config.json")
    for key, allowed in (
        ("hidden_act", ("silu",)),
        ("attention_bias", (False,)),
        ("norm_topk_prob", (True,)),
        ("indexer_kv_heads", (1,)),
    ):
        read.refuse(key, allowed=allowed, why="nothing else is implemented")
    layers = read.count("num_hidden_layers")
    interval = read.count("full_attention_interval", 4)
    names = text.get("layer_types") or [
        "linear_attention" if (i + 1) % interval else "indexed_attention" for i in range(layers)
    ]
    known = {"linear_attention": "delta", "indexed_attention": "sparse", "full_attention": "sparse"}
    unknown = sorted({str(n) for n in names} - set(known))
    if unknown or len(names) != layers:
        raise FamilyError(f"config.json: layer_types has {len(names)} entries for {layers} layers, unknown: {unknown}.")
    kinds = tuple(known[n] for n in names)
    rope = text.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default":
        raise FamilyError(f"config.json: rope_type {rope['rope_type']!r} is not implemented; only 'default' is.")
    head_dim, mtp = read.count("head_dim"), read.count("mtp_num_hidden_layers", 0, least=0)
    if mtp > 1:
        raise FamilyError(f"config.json: mtp_num_hidden_layers is {mtp}; 0 or 1 MTP layer is implemented.")
    ratio = read.count("indexer_compress_ratio")
    partial = rope.get("partial_rotary_factor", text.get("partial_rotary_factor", 1.0))
    spec = Spec(
        name=str(config.get("_name_or_path") or MODEL_TYPES[0]),
        vocab_size=read.count("vocab_size"),
        context_length=read.count("max_position_embeddings"),
        hidden=read.count("hidden_size"),
        eps=read.number("rms_norm_eps"),
        kinds=kinds,
        ratios=tuple(ratio if kind == "sparse" else 0 for kind in kinds) + (ratio,) * mtp,
        mtp_layers=mtp,
        streams=read.count("hc_count", 4),
        rank=read.count("hc_lowrank", 320),
        attention=AttentionSpec(
            heads=read.count("num_attention_heads"),
            kv_heads=read.count("num_key_value_heads"),
            head_dim=head_dim,
            rope_dim=int(head_dim * partial),
            rope_base=float(rope.get("rope_theta", text.get("rope_theta", 1e7))),
            index_heads=read.count("indexer_n_heads"),
            index_dim=read.count("indexer_head_dim"),
            index_budget=read.count("indexer_budget"),
        ),
        delta=DeltaSpec(
            key_heads=read.count("linear_num_key_heads"),
            value_heads=read.count("linear_num_value_heads"),
            key_dim=read.count("linear_key_head_dim"),
            value_dim=read.count("linear_value_head_dim"),
            conv_taps=read.count("linear_conv_kernel_dim", 4),
            gate=str(text.get("output_gate_type") or text.get("hidden_act", "silu")),
        ),
        experts=ExpertSpec(
            count=read.count("num_experts"),
            used=read.count("num_experts_per_tok"),
            width=read.count("moe_intermediate_size"),
            shared_width=read.count("shared_expert_intermediate_size"),
        ),
        ngram=_ngram_from_config(read, text, kinds),
    )
    return check(spec)


def _ngram_from_config(read: Reader, text: Mapping[str, Any], kinds: tuple[str, ...]) -> NgramSpec | None:
    where = sorted(set(text.get("ple_layer_ids") or ()))
    if not where:
        return None
    if len(where) != 1 or not 1 <= where[0] <= len(kinds):
        raise FamilyError(f"config.json: ple_layer_ids is {where}; one layer of 1..{len(kinds)} is implemented.")
    order, heads = read.count("ngram_size", 3, least=2), read.count("heads_per_ngram", 8)
    total = (order - 1) * heads
    width = read.count("ple_embed_dim", read.count("hidden_size"))
    if width % total:
        raise FamilyError(f"config.json: ple_embed_dim {width} is not a multiple of the {total} n-gram heads.")
    sizes = head_sizes(read.count("ngram_vocab_size_base", 20_000_000), total)
    divisor = read.count("make_ngram_vocab_size_divisible_by", 128)
    eos = text.get("eos_token_id")
    eos = eos[0] if isinstance(eos, list) and eos else eos
    if not isinstance(eos, int):
        raise FamilyError("config.json: eos_token_id is missing; the n-gram table needs it.")
    return NgramSpec(
        layer=where[0] - 1,
        order=order,
        heads=heads,
        row_width=width // total,
        conv_taps=read.count("ple_conv_kernel_size", 4),
        eos=eos,
        multipliers=hash_multipliers(read.count("vocab_size"), order, read.count("seed", 1234, least=0)),
        offsets=tuple(sum(sizes[:i]) for i in range(total)),
        sizes=sizes,
        rows=-(-sum(sizes) // divisor) * divisor,
    )


def hash_multipliers(vocab_size: int, order: int, seed: int) -> tuple[int, ...]:
    """The n-gram hash multipliers of the first table: odd numbers from splitmix64, small enough not to overflow int64.

    Source: the published model's code (transformers, qwen4_exp).
    """
    mask, gamma = (1 << 64) - 1, 0x9E3779B97F4A7C15
    bound = max(1, ((1 << 63) - 1) // max(vocab_size, 1) // 2)

    def splitmix(value: int) -> int:
        value = (value + gamma) & mask
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & mask
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & mask
        return value ^ (value >> 31)

    return tuple(2 * (splitmix((seed + gamma * (i + 1)) & mask) % bound) + 1 for i in range(order))


def head_sizes(base: int, count: int) -> tuple[int, ...]:
    """The first `count` primes from `base` on: each n-gram head's part of the table (same source)."""
    primes: list[int] = []
    candidate = base
    while len(primes) < count:
        if candidate >= 2 and all(candidate % d for d in range(2, math.isqrt(candidate) + 1)):
            primes.append(candidate)
        candidate += 1
    return tuple(primes)


def check(spec: Spec) -> Spec:
    """The spec itself, or FamilyError naming the numbers that do not fit each other."""
    a, d, e = spec.attention, spec.delta, spec.experts
    problems = [
        (a.heads % a.kv_heads, f"{a.heads} query heads are no multiple of {a.kv_heads} key heads"),
        (
            a.rope_dim % 2 or a.rope_dim > min(a.head_dim, a.index_dim) or a.rope_dim == 0,
            f"{a.rope_dim} rotary dimensions do not fit heads of {a.head_dim} and index heads of {a.index_dim}",
        ),
        (d.value_heads % d.key_heads, f"{d.value_heads} value heads are no multiple of {d.key_heads} key heads"),
        (not 0 < e.used <= e.count, f"{e.used} experts a token of {e.count}"),
        (d.gate not in ("sigmoid", "silu"), f"output gate {d.gate!r} is neither sigmoid nor silu"),
        (spec.streams < 2, f"{spec.streams} residual streams (at least 2 are needed)"),
        (any(r < 0 for r in spec.ratios), f"compress ratios {list(spec.ratios)} hold a negative one"),
        (
            any(r and a.index_budget % r for r in spec.ratios),
            f"the index budget of {a.index_budget} tokens is no multiple of the ratios {sorted(set(spec.ratios))}",
        ),
        (spec.ngram is not None and any(s <= 0 for s in spec.ngram.sizes), "an n-gram head of no rows"),
    ]
    for bad, text in problems:
        if bad:
            raise FamilyError(f"This {ARCHITECTURE} model cannot run: {text}.")
    return spec
