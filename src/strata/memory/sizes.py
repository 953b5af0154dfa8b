"""What a conversation costs in memory, and how large the KV pool may be. Pure arithmetic on a model's spec."""

from dataclasses import dataclass

from strata.errors import UsageError
from strata.families import Spec
from strata.memory.pool import CHUNK
from strata.units import bytes_text

KV_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
CONTEXTS = 32
"""A pool that sizes itself takes no more than so many whole contexts."""
WAITING = 8
"""Positions whose streams may wait for the MTP block."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes of one chunk (256 positions of all attention layers) and of a kept state beside its chunks."""

    chunk: int
    state: int

    @classmethod
    def of(cls, spec: Spec, kv: str) -> "Sizes":
        """The sizes of a model with caches of type `kv` ("bf16", "f16", "f32")."""
        return cls(chunk_bytes(spec, kv), state_bytes(spec))


def chunk_bytes(spec: Spec, kv: str) -> int:
    """Bytes of keys, values and pooled index keys of 256 positions, the MTP block's included.

    The index keys of r blocks lie in chunks of 256 rows (256 * r positions): each chunk of positions bears its share.
    """
    a, size = spec.attention, KV_BYTES[kv]
    ratios = [ratio for kind, ratio in zip(spec.kinds, spec.ratios, strict=False) if kind != "delta"]
    ratios += spec.ratios[spec.layers : spec.layers + spec.mtp_layers]
    total = 0
    for ratio in ratios:
        total += 2 * a.kv_heads * a.head_dim * size * CHUNK
        if ratio:
            total += -(-CHUNK // ratio) * a.index_dim * size
    return total


def state_bytes(spec: Spec) -> int:
    """Bytes of a state beside its chunks: delta states, tails of the convolutions, open index keys, and
    the streams of the positions that the MTP block has not read (fp32 all)."""
    d, a, wide = spec.delta, spec.attention, spec.streams * spec.hidden
    deltas = spec.kinds.count("delta")
    total = deltas * (d.value_heads * d.key_dim * d.value_dim + (d.conv_taps - 1) * d.conv_width) * 4
    total += sum(max(0, ratio - 1) for ratio in spec.ratios) * a.index_dim * 4
    if spec.ngram is not None:
        total += (spec.ngram.conv_taps - 1) * spec.ngram.order * wide * 4
    return total + spec.mtp_layers * WAITING * wide * 4


def pool_tokens(sizes: Sizes, budget: int, context: int, asked: int = 0) -> int:
    """Tokens of the pool: `asked` (--kv-pool-tokens), else what `budget` bytes hold, at most 32 contexts.

    UsageError where the pool would not hold one context of `context` tokens.
    """
    if asked:
        if asked < context:
            raise UsageError(
                f"--kv-pool-tokens {asked} is less than one context of {context} tokens; ask for at least {context}, "
                "or for less with --max-context."
            )
        return asked
    fits = budget // sizes.chunk * CHUNK
    if fits < context:
        raise UsageError(
            f"{bytes_text(budget)} of memory hold the keys and values of {fits} tokens, less than one context of "
            f"{context}; use --max-context {fits} or less."
        )
    return min(fits, max(CHUNK, -(-CONTEXTS * context // CHUNK) * CHUNK))
