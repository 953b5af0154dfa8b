"""A model as the extension takes it: nested dicts of numbers, arrays and matrices."""

from collections.abc import Callable
from typing import Any

import numpy as np

from strata.arithmetic import Matrix, Weights
from strata.arithmetic.functions import constant_rsqrt
from strata.arithmetic.hyper import HyperConnection
from strata.arithmetic.types import F32
from strata.arithmetic.weights import AttentionWeights, Block, DeltaWeights, ExpertWeights, MtpWeights, NgramWeights
from strata.cpu import _native
from strata.families import Spec

Native = Callable[[Matrix], "_native.Matrix"]


def describe_spec(spec: Spec, kv: str) -> dict[str, Any]:
    """The spec; `kv` is the type of the attention caches."""
    a, d, e, n = spec.attention, spec.delta, spec.experts, spec.ngram
    ngram = None if n is None else {
        "layer": n.layer, "order": n.order, "heads": n.heads, "row_width": n.row_width, "conv_taps": n.conv_taps,
        "eos": n.eos, "multipliers": list(n.multipliers), "offsets": list(n.offsets), "sizes": list(n.sizes),
    }  # fmt: skip
    return {
        "vocabulary": spec.vocab_size, "hidden": spec.hidden, "streams": spec.streams, "rank": spec.rank,
        "eps": float(spec.eps), "delta_layers": [kind == "delta" for kind in spec.kinds], "ratios": list(spec.ratios),
        "kv": kv, "mtp": bool(spec.mtp_layers), "ngram": ngram,
        "attention": {
            "heads": a.heads, "kv_heads": a.kv_heads, "head_dim": a.head_dim, "rope_dim": a.rope_dim,
            "index_heads": a.index_heads, "index_dim": a.index_dim, "index_budget": a.index_budget,
            "scale": float(constant_rsqrt(a.head_dim)),
        },
        "delta": {
            "key_heads": d.key_heads, "value_heads": d.value_heads, "key_dim": d.key_dim, "value_dim": d.value_dim,
            "conv_taps": d.conv_taps, "silu_gate": d.gate == "silu", "query_scale": float(constant_rsqrt(d.key_dim)),
        },
        "experts": {"count": e.count, "used": e.used, "width": e.width, "shared_width": e.shared_width},
    }  # fmt: skip


def describe_weights(weights: Weights, native: Native) -> dict[str, Any]:
    """The weights; `native` makes the extension's matrix of one of ours (the same one of the same)."""
    ngrams = [block.ngram for block in weights.blocks if block.ngram is not None]
    return {
        "embedding": native(weights.embedding),
        "output": native(weights.output),
        "blocks": [_block(block, native) for block in weights.blocks],
        "head": _site(weights.head, native),
        "ngram": _ngram(ngrams[0], native) if ngrams else None,
        "mtp": None if weights.mtp is None else _mtp(weights.mtp, native),
    }


def _site(site: HyperConnection, native: Native) -> dict[str, Any]:
    return {
        "gamma": _vector(site.gamma),
        "down": native(site.down),
        "up": native(site.up),
        "inject": None if site.inject is None else native(site.inject),
    }


def _block(block: Block, native: Native) -> dict[str, Any]:
    mixer = (
        {"delta": _delta(block.mixer, native)}
        if isinstance(block.mixer, DeltaWeights)
        else {"attention": _attention(block.mixer, native)}
    )
    return {
        "attention_site": _site(block.attn_site, native),
        "expert_site": _site(block.ffn_site, native),
        "experts": _experts(block.experts, native),
        **mixer,
    }


def _delta(w: DeltaWeights, native: Native) -> dict[str, Any]:
    return {
        "qkv": native(w.qkv), "gate": native(w.gate), "alpha": native(w.alpha), "beta": native(w.beta),
        "out": native(w.out), "a": _vector(w.a), "dt": _vector(w.dt), "conv": _taps(w.conv), "gamma": _vector(w.gamma),
    }  # fmt: skip


def _attention(w: AttentionWeights, native: Native) -> dict[str, Any]:
    i = w.indexer
    return {
        "q": native(w.q), "k": native(w.k), "v": native(w.v), "out": native(w.out), "ratio": w.ratio,
        "q_gamma": _vector(w.q_gamma), "k_gamma": _vector(w.k_gamma),
        "index_q": None if i is None else native(i.q), "index_k": None if i is None else native(i.k),
        "index_q_gamma": None if i is None else _vector(i.q_gamma),
        "index_k_gamma": None if i is None else _vector(i.k_gamma),
    }  # fmt: skip


def _experts(w: ExpertWeights, native: Native) -> dict[str, Any]:
    return {
        "router": native(w.router),
        "shared_gate": native(w.shared_gate),
        "experts": [tuple(native(part) for part in expert) for expert in w.experts],
        "shared": tuple(native(part) for part in w.shared),
    }


def _ngram(w: NgramWeights, native: Native) -> dict[str, Any]:
    return {
        "table": native(w.table), "key": native(w.key), "value": native(w.value), "conv": _taps(w.conv),
        "key_gamma": _vector(w.key_gamma), "query_gamma": _vector(w.query_gamma), "conv_gamma": _vector(w.conv_gamma),
    }  # fmt: skip


def _mtp(w: MtpWeights, native: Native) -> dict[str, Any]:
    return {
        "embedding_gamma": _vector(w.embedding_gamma),
        "hidden_gamma": _vector(w.hidden_gamma),
        "project": native(w.project),
        "block": _block(w.block, native),
        "head": _site(w.head, native),
    }


def _vector(values: F32) -> F32:
    return np.ascontiguousarray(values, np.float32)


def _taps(weight: F32) -> F32:
    """A convolution's weight (C, taps) with the channels side by side: (taps, C)."""
    return np.ascontiguousarray(weight.T, np.float32)
