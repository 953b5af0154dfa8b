"""The whole model, slowly: one forward pass over a window of rows of several conversations, and the MTP block.

Rows of all segments go through the products together; what depends on a conversation's past (convolutions, delta
rule, attention, n-grams) runs segment by segment. No row's bits depend on the others (docs/arithmetic.md, section 1).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from strata.arithmetic import attention, experts, recurrent
from strata.arithmetic.functions import constant_rsqrt, exp, round_to, sigmoid, silu, softplus
from strata.arithmetic.hyper import HyperConnection, inject, mix_streams
from strata.arithmetic.ngram import ngram_gate, ngram_rows
from strata.arithmetic.norms import gated_rms_norm, l2_norm, rms_norm
from strata.arithmetic.products import Matrix, Rows, product
from strata.arithmetic.rope import RopeTable, apply_rope
from strata.arithmetic.state import AttentionState, DeltaState, LaneState
from strata.arithmetic.types import F32, I64
from strata.arithmetic.weights import AttentionWeights, Block, DeltaWeights, ExpertWeights, NgramWeights, Weights
from strata.families import Spec


@dataclass(frozen=True, slots=True)
class Ops:
    """The ops that another room may compute faster with the same bits (same names there)."""

    product: Callable[[Rows, Matrix], F32] = product
    gated_delta_rule: Callable[[F32, F32, F32, F32, F32, F32], tuple[F32, F32]] = recurrent.gated_delta_rule
    attend: Callable[[F32, F32, F32, np.float32], F32] = attention.attend


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive new tokens of one conversation; logits are wanted for `tokens[logits_from:]`."""

    state: LaneState
    tokens: Sequence[int]
    logits_from: int


@dataclass(frozen=True, slots=True)
class MtpSegment:
    """Rows of the MTP block: `streams` (T, S, D) of the trunk (or its own) at T positions, and the token after each."""

    cache: AttentionState
    streams: F32
    tokens: Sequence[int]


class Reference:
    """A qwen4_exp model in numpy. `kv` is the type of the attention caches: 'f32', 'bf16' or 'f16'."""

    def __init__(self, spec: Spec, weights: Weights, kv: str = "bf16", ops: Ops | None = None) -> None:
        self.spec, self.weights, self.kv, self.ops = spec, weights, kv, ops or Ops()
        self.rope = RopeTable(spec.attention.rope_base, spec.attention.rope_dim)

    def forward(self, segments: Sequence[Segment]) -> F32:
        """Advance every state by its tokens; logits (wanted rows of all segments in order, vocabulary)."""
        streams = self.trunk(segments)
        wanted = np.concatenate(
            [
                np.arange(span.start + s.logits_from, span.stop)
                for s, span in zip(segments, _spans(segments), strict=True)
            ]
        )
        if not wanted.size:
            return np.empty((0, self.spec.vocab_size), np.float32)
        return self.logits(streams[wanted], self.weights.head)

    def trunk(self, segments: Sequence[Segment]) -> F32:
        """The streams (R, S, D) of every row after the last layer."""
        tokens = np.concatenate([np.asarray(s.tokens, np.int64) for s in segments])
        x = self.weights.embedding.rows(tokens)
        streams = np.repeat(x[:, None, :], self.spec.streams, axis=1)
        for layer, block in enumerate(self.weights.blocks):
            streams = self._layer(block, streams, segments, layer)
        for segment in segments:
            segment.state.tokens.extend(int(t) for t in segment.tokens)
        return streams

    def logits(self, streams: F32, head: HyperConnection) -> F32:
        """Logits (R, V) of streams (R, S, D) behind a final mixer."""
        mixed, _ = mix_streams(streams, head, self.spec.eps, self.ops.product)
        return self.ops.product(Rows(mixed), self.weights.output)

    def mtp(self, segments: Sequence[MtpSegment]) -> tuple[F32, F32]:
        """The MTP block: logits (R, V) of the token after next, and the block's streams (R, S, D) for the next draft.

        Row i of a segment stands at the position of its cache's row i; several drafts in a row feed the block its own
        streams.
        """
        mtp = self.weights.mtp
        assert mtp is not None, "the model has no MTP block"
        eps, hidden = self.spec.eps, self.spec.hidden
        tokens = np.concatenate([np.asarray(s.tokens, np.int64) for s in segments])
        streams = np.concatenate([s.streams for s in segments])
        count, s, _ = streams.shape
        e = rms_norm(self.weights.embedding.rows(tokens), mtp.embedding_gamma, eps)
        h = rms_norm(streams.reshape(count, s * hidden), mtp.hidden_gamma, eps, group=hidden).reshape(streams.shape)
        both = np.concatenate([np.repeat(e[:, None, :], s, axis=1), h], axis=-1)
        streams = self.ops.product(Rows(both.reshape(count * s, 2 * hidden)), mtp.project).reshape(streams.shape)
        mixer = mtp.block.mixer
        assert isinstance(mixer, AttentionWeights)
        caches = list(zip((seg.cache for seg in segments), _spans(segments), strict=True))
        streams = self._around(mtp.block.attn_site, streams, lambda x: self._attention(mixer, x, caches))
        streams = self._around(mtp.block.ffn_site, streams, lambda x: self._experts(mtp.block.experts, x))
        return self.logits(streams, mtp.head), streams

    def _layer(self, block: Block, streams: F32, segments: Sequence[Segment], layer: int) -> F32:
        if block.ngram is not None:
            streams = streams + self._ngram(block.ngram, streams, segments)
        states = [(s.state.layers[layer], span) for s, span in zip(segments, _spans(segments), strict=True)]
        mixer = self._delta if isinstance(block.mixer, DeltaWeights) else self._attention
        streams = self._around(block.attn_site, streams, lambda x: mixer(block.mixer, x, states))  # type: ignore[arg-type]
        return self._around(block.ffn_site, streams, lambda x: self._experts(block.experts, x))

    def _around(self, site: HyperConnection, streams: F32, inner: Callable[[F32], F32]) -> F32:
        mixed, weights = mix_streams(streams, site, self.spec.eps, self.ops.product)
        assert weights is not None
        return inject(streams, inner(mixed), weights)

    def _delta(self, w: DeltaWeights, x: F32, states: list[tuple[DeltaState, slice]]) -> F32:
        d, rows = self.spec.delta, Rows(x)
        count = len(x)
        qkv, gate = self.ops.product(rows, w.qkv), self.ops.product(rows, w.gate)
        beta = sigmoid(self.ops.product(rows, w.beta))
        decay = exp(w.a * softplus(self.ops.product(rows, w.alpha) + w.dt))
        mixed = np.empty_like(qkv)
        for state, span in states:
            mixed[span], state.tail = recurrent.causal_conv(state.tail, qkv[span], w.conv)
        mixed = silu(mixed)
        q = l2_norm(mixed[:, : d.key_width].reshape(count, d.key_heads, d.key_dim)) * constant_rsqrt(d.key_dim)
        k = l2_norm(mixed[:, d.key_width : 2 * d.key_width].reshape(count, d.key_heads, d.key_dim))
        v = mixed[:, 2 * d.key_width :].reshape(count, d.value_heads, d.value_dim)
        tiles = d.value_heads // d.key_heads
        q, k = np.tile(q, (1, tiles, 1)), np.tile(k, (1, tiles, 1))
        out = np.empty_like(v)
        for state, span in states:
            out[span], state.state = self.ops.gated_delta_rule(
                state.state, q[span], k[span], v[span], decay[span], beta[span]
            )
        gated = gated_rms_norm(out, gate.reshape(v.shape), w.gamma, self.spec.eps, d.gate)
        return self.ops.product(Rows(gated.reshape(count, d.value_width)), w.out)

    def _attention(self, w: AttentionWeights, x: F32, states: list[tuple[AttentionState, slice]]) -> F32:
        a, eps, rows = self.spec.attention, self.spec.eps, Rows(x)
        count = len(x)
        positions = np.concatenate([np.arange(span.stop - span.start) + state.k.length for state, span in states])
        cos, sin = self.rope.at(positions)
        both = self.ops.product(rows, w.q).reshape(count, a.heads, 2, a.head_dim)
        q = apply_rope(rms_norm(both[:, :, 0], w.q_gamma, eps), cos, sin)
        gate = both[:, :, 1].reshape(count, -1)
        k = self.ops.product(rows, w.k).reshape(count, a.kv_heads, a.head_dim)
        k = round_to(apply_rope(rms_norm(k, w.k_gamma, eps), cos, sin), self.kv)
        v = round_to(self.ops.product(rows, w.v).reshape(count, a.kv_heads, a.head_dim), self.kv)
        index_q = self._index(w, rows, states, cos, sin)
        out = np.empty_like(q)
        for state, span in states:
            first = state.k.length
            state.k.append(k[span])
            state.v.append(v[span])
            for r in range(span.start, span.stop):
                position = first + r - span.start
                chosen = self._chosen(w.ratio, state, position, None if index_q is None else index_q[r])
                out[r] = self.ops.attend(q[r], state.k.rows[chosen], state.v.rows[chosen], constant_rsqrt(a.head_dim))
        return self.ops.product(Rows(out.reshape(count, -1) * sigmoid(gate)), w.out)

    def _index(
        self, w: AttentionWeights, rows: Rows, states: list[tuple[AttentionState, slice]], cos: F32, sin: F32
    ) -> F32 | None:
        """Index queries (R, H, Di) of the rows; the blocks that they complete get their keys in the caches."""
        if w.indexer is None:
            return None
        a, eps = self.spec.attention, self.spec.eps
        q = self.ops.product(rows, w.indexer.q).reshape(-1, a.index_heads, a.index_dim)
        raw = self.ops.product(rows, w.indexer.k)
        for state, span in states:
            fresh = np.concatenate([state.open, raw[span]])
            blocks = len(fresh) // w.ratio
            pooled = attention.pool_keys(fresh[: blocks * w.ratio].reshape(blocks, w.ratio, a.index_dim))
            starts = (state.index.length + np.arange(blocks)) * w.ratio
            keys = apply_rope(rms_norm(pooled, w.indexer.k_gamma, eps)[:, None], *self.rope.at(starts))[:, 0]
            state.index.append(round_to(keys, self.kv))
            state.open = fresh[blocks * w.ratio :].copy()
        return apply_rope(rms_norm(q, w.indexer.q_gamma, eps), cos, sin)

    def _chosen(self, ratio: int, state: AttentionState, position: int, index_q: F32 | None) -> slice | I64:
        """The positions a row attends to: all, or those of the best blocks when there are more than the budget."""
        blocks = self.spec.attention.index_budget // ratio if ratio else 0
        complete = (position + 1) // ratio if ratio else 0
        if index_q is None or complete <= blocks:
            return slice(0, position + 1)
        scores = attention.index_scores(index_q, state.index.rows[:complete])
        return attention.selected_positions(attention.select_blocks(scores, blocks), ratio, position)

    def _experts(self, w: ExpertWeights, x: F32) -> F32:
        rows, op = Rows(x), self.ops.product
        ids, weights = experts.route(op(rows, w.router), self.spec.experts.used)
        mixed = experts.mix_experts(
            rows, ids, weights, lambda e, part: experts.feed_forward(part, *w.experts[e], op), self.spec.hidden
        )
        shared = experts.feed_forward(rows, *w.shared, op)
        return experts.add_shared(mixed, shared, op(rows, w.shared_gate))

    def _ngram(self, w: NgramWeights, streams: F32, segments: Sequence[Segment]) -> F32:
        facts = self.spec.ngram
        assert facts is not None
        count, s, d = streams.shape
        spans = list(_spans(segments))
        ids = []
        for segment in segments:
            state = segment.state.ngram
            assert state is not None
            found, state.tokens = ngram_rows(
                state.tokens,
                np.asarray(segment.tokens, np.int64),
                w.multipliers,
                w.offsets,
                w.sizes,
                facts.heads,
                facts.eos,
            )
            ids.append(found)
        found = np.concatenate(ids)
        rows = Rows(w.table.rows(found.reshape(-1)).reshape(count, -1))
        value = self.ops.product(rows, w.value)
        gated = ngram_gate(self.ops.product(rows, w.key), streams, value, w.key_gamma, w.query_gamma, self.spec.eps)
        flat = gated.reshape(count, s * d)
        normed = rms_norm(flat, w.conv_gamma, self.spec.eps, group=d)
        mixed = np.empty_like(flat)
        for segment, span in zip(segments, spans, strict=True):
            state = segment.state.ngram
            assert state is not None
            mixed[span], state.tail = recurrent.causal_conv(state.tail, normed[span], w.conv, dilation=facts.order)
        return (flat + silu(mixed)).reshape(streams.shape)


def _spans(segments: Sequence[Segment] | Sequence[MtpSegment]) -> Iterator[slice]:
    """The rows of each segment in the window."""
    start = 0
    for segment in segments:
        yield slice(start, start + len(segment.tokens))
        start += len(segment.tokens)
