"""The weights of a qwen4_exp model as the forward pass takes them: matrices as the file has them, vectors in fp32."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.arithmetic.hyper import HyperConnection
from strata.arithmetic.products import Matrix
from strata.arithmetic.types import F32, I64
from strata.families import Source, Spec


@dataclass(frozen=True, slots=True)
class DeltaWeights:
    """A gated delta net layer; value heads in tiled order."""

    qkv: Matrix
    gate: Matrix
    alpha: Matrix
    beta: Matrix
    a: F32  # (Hv,), -exp(A_log)
    dt: F32  # (Hv,)
    conv: F32  # (C, taps)
    gamma: F32  # (Dv,)
    out: Matrix


@dataclass(frozen=True, slots=True)
class IndexerWeights:
    """The indexer of a sparse attention layer."""

    q: Matrix
    k: Matrix
    q_gamma: F32
    k_gamma: F32


@dataclass(frozen=True, slots=True)
class AttentionWeights:
    """An attention layer; `q` gives [query | gate] of each head; no indexer: it attends densely."""

    q: Matrix
    k: Matrix
    v: Matrix
    out: Matrix
    q_gamma: F32
    k_gamma: F32
    indexer: IndexerWeights | None
    ratio: int


@dataclass(frozen=True, slots=True)
class ExpertWeights:
    """A layer's router, experts (one (gate, up, down) each) and shared expert."""

    router: Matrix
    experts: Sequence[tuple[Matrix, Matrix, Matrix]]
    shared: tuple[Matrix, Matrix, Matrix]
    shared_gate: Matrix


@dataclass(frozen=True, slots=True)
class NgramWeights:
    """The n-gram layer: its table and hashing constants, projections, norms and convolution."""

    table: Matrix
    multipliers: I64
    offsets: I64
    sizes: I64
    key: Matrix
    value: Matrix
    conv: F32
    key_gamma: F32
    query_gamma: F32
    conv_gamma: F32


@dataclass(frozen=True, slots=True)
class Block:
    """One layer: its mixer (delta or attention) and experts, each behind a hyper-connection; n-grams before both."""

    ngram: NgramWeights | None
    attn_site: HyperConnection
    mixer: DeltaWeights | AttentionWeights
    ffn_site: HyperConnection
    experts: ExpertWeights


@dataclass(frozen=True, slots=True)
class MtpWeights:
    """The multi-token-prediction block."""

    embedding_gamma: F32
    hidden_gamma: F32
    project: Matrix  # (D, 2D): [embedding | stream]
    block: Block
    head: HyperConnection


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole model."""

    embedding: Matrix
    blocks: tuple[Block, ...]
    head: HyperConnection
    output: Matrix
    mtp: MtpWeights | None


def bind(source: Source, spec: Spec) -> Weights:
    """The weights of a checked checkpoint; matrices keep the file's bytes, nothing is unpacked yet."""
    b = _Binder(source, spec)
    embedding = b.matrix("token_embd.weight")
    return Weights(
        embedding=embedding,
        blocks=tuple(b.block(layer, kind) for layer, kind in enumerate(spec.kinds)),
        head=b.site("output_hc", inject=False),
        output=b.matrix("output.weight") if source.has("output.weight") else embedding,
        mtp=b.mtp(spec.layers) if spec.mtp_layers else None,
    )


class _Binder:
    def __init__(self, source: Source, spec: Spec) -> None:
        self.source, self.spec = source, spec

    def vector(self, name: str) -> F32:
        return self.source.get(name).floats().reshape(-1)

    def floats(self, name: str) -> F32:
        return self.source.get(name).floats()

    def matrix(self, name: str) -> Matrix:
        data = self.source.get(name)
        return Matrix(data.format, data.raw, data.rows, data.shape[-1])

    def stack(self, name: str) -> list[Matrix]:
        data = self.source.get(name)
        count, n, k = data.shape
        return [Matrix(data.format, raw, n, k) for raw in data.raw.reshape(count, -1)]

    def site(self, prefix: str, inject: bool = True) -> HyperConnection:
        return HyperConnection(
            self.vector(f"{prefix}_norm.weight"),
            self.matrix(f"{prefix}_down.weight"),
            self.matrix(f"{prefix}_up.weight"),
            self.matrix(f"{prefix}_inject.weight") if inject else None,
        )

    def block(self, layer: int, kind: str) -> Block:
        at = f"blk.{layer}."
        ngram = self.spec.ngram is not None and layer == self.spec.ngram.layer
        return Block(
            ngram=self.ngram(at) if ngram else None,
            attn_site=self.site(f"{at}hc_attn"),
            mixer=self.delta(at) if kind == "delta" else self.attention(at, layer),
            ffn_site=self.site(f"{at}hc_ffn"),
            experts=self.experts(at),
        )

    def delta(self, at: str) -> DeltaWeights:
        return DeltaWeights(
            qkv=self.matrix(f"{at}attn_qkv.weight"),
            gate=self.matrix(f"{at}attn_gate.weight"),
            alpha=self.matrix(f"{at}ssm_alpha.weight"),
            beta=self.matrix(f"{at}ssm_beta.weight"),
            a=self.vector(f"{at}ssm_a"),
            dt=self.vector(f"{at}ssm_dt.bias"),
            conv=self.floats(f"{at}ssm_conv1d.weight"),
            gamma=self.vector(f"{at}ssm_norm.weight"),
            out=self.matrix(f"{at}ssm_out.weight"),
        )

    def attention(self, at: str, layer: int) -> AttentionWeights:
        ratio = self.spec.ratios[layer]
        indexer = (
            IndexerWeights(
                q=self.matrix(f"{at}indexer.q_proj.weight"),
                k=self.matrix(f"{at}indexer.k_proj.weight"),
                q_gamma=self.vector(f"{at}indexer.q_norm.weight"),
                k_gamma=self.vector(f"{at}indexer.k_norm.weight"),
            )
            if ratio
            else None
        )
        return AttentionWeights(
            q=self.matrix(f"{at}attn_q.weight"),
            k=self.matrix(f"{at}attn_k.weight"),
            v=self.matrix(f"{at}attn_v.weight"),
            out=self.matrix(f"{at}attn_output.weight"),
            q_gamma=self.vector(f"{at}attn_q_norm.weight"),
            k_gamma=self.vector(f"{at}attn_k_norm.weight"),
            indexer=indexer,
            ratio=ratio,
        )

    def experts(self, at: str) -> ExpertWeights:
        gate, up, down = (self.stack(f"{at}ffn_{part}_exps.weight") for part in ("gate", "up", "down"))
        shared = [self.matrix(f"{at}ffn_{part}_shexp.weight") for part in ("gate", "up", "down")]
        return ExpertWeights(
            router=self.matrix(f"{at}ffn_gate_inp.weight"),
            experts=tuple(zip(gate, up, down, strict=True)),
            shared=(shared[0], shared[1], shared[2]),
            shared_gate=self.matrix(f"{at}ffn_gate_inp_shexp.weight"),
        )

    def ngram(self, at: str) -> NgramWeights:
        facts = self.spec.ngram
        assert facts is not None
        return NgramWeights(
            table=self.matrix("per_layer_token_embd.weight"),
            multipliers=np.array(facts.multipliers, np.int64),
            offsets=np.array(facts.offsets, np.int64),
            sizes=np.array(facts.sizes, np.int64),
            key=self.matrix(f"{at}ple_key.weight"),
            value=self.matrix(f"{at}ple_value.weight"),
            conv=self.floats(f"{at}ple_conv1d.weight"),
            key_gamma=self.vector(f"{at}ple_norm_key.weight"),
            query_gamma=self.vector(f"{at}ple_norm_query.weight"),
            conv_gamma=self.vector(f"{at}ple_norm_conv.weight"),
        )

    def mtp(self, layer: int) -> MtpWeights:
        at = f"blk.{layer}."
        return MtpWeights(
            embedding_gamma=self.vector(f"{at}nextn.enorm.weight"),
            hidden_gamma=self.vector(f"{at}nextn.hnorm.weight"),
            project=self.matrix(f"{at}nextn.eh_proj.weight"),
            block=self.block(layer, "sparse"),
            head=self.site(f"{at}nextn.hc_head", inject=False),
        )
