"""The whole forward pass in C++: one call a window, without the GIL, with the bits of `strata.arithmetic.Reference`."""

from collections.abc import Sequence

import numpy as np

from strata.arithmetic import Matrix, Weights
from strata.arithmetic.rope import RopeTable
from strata.arithmetic.sampling import Sampling
from strata.arithmetic.types import F32, I64
from strata.cpu import _native
from strata.cpu.describe import describe_spec, describe_weights
from strata.cpu.lane import Lane
from strata.cpu.loading import Progress, make_ready
from strata.cpu.products import choose_isa, native_matrix
from strata.cpu.sampling import sample
from strata.errors import UsageError
from strata.families import Spec

FIRST_POSITIONS = 4096


class NativeModel:
    """A qwen4_exp model on the CPU. `kv`: the type of the attention caches; `threads`: 0 takes every physical core.

    `progress("weights", done, total)` is called while weights are made ready.
    """

    def __init__(
        self, spec: Spec, weights: Weights, kv: str = "bf16", threads: int = 0, progress: Progress | None = None
    ) -> None:
        choose_isa()
        self.spec, self.kv = spec, kv
        self._matrices: dict[int, tuple[Matrix, _native.Matrix]] = {}
        self.native = _native.Model(describe_spec(spec, kv), describe_weights(weights, self._matrix), threads)
        make_ready(self.native, weights, self._matrix, progress)
        self._rope = RopeTable(spec.attention.rope_base, spec.attention.rope_dim)

    @property
    def threads(self) -> int:
        """Threads that compute, the caller's counted."""
        return self.native.threads

    @property
    def computed_by(self) -> str:
        """What computes, for the files of conversations: "native " and the instruction set."""
        return f"native {_native.selected_isa()}"

    def sample(self, logits: F32, sampling: Sampling, *, choice: int, position: int) -> int:
        """Draw the token at `position` from one row of logits (V,); RequestError on a NaN logit."""
        return sample(logits, sampling, choice=choice, position=position)

    def new_lane(self, drafts: bool = False) -> Lane:
        """An empty conversation; `drafts`: the MTP block follows it."""
        if drafts and not self.spec.mtp_layers:
            raise UsageError("The model has no MTP block, so it cannot draft.")
        return Lane.empty(self.native, self.spec, self.kv, drafts)

    def forward(
        self,
        lanes: Sequence[Lane],
        tokens: Sequence[Sequence[int]],
        tentative: Sequence[int],
        logits_from: Sequence[int],
        streams: F32 | None = None,
    ) -> F32:
        """Advance lane i by tokens[i], the last tentative[i] undecided; logits of the rows from logits_from[i] on.

        Rows of all lanes in order, fp32 (rows, vocabulary). `streams`: (all rows, S*D), filled with the trunk's.
        """
        arrays = [np.ascontiguousarray(t, np.int64) for t in tokens]
        rows = sum(len(t) - first for t, first in zip(arrays, logits_from, strict=True))
        self._reach(max((lane.length + len(t) for lane, t in zip(lanes, arrays, strict=True)), default=0))
        logits = np.empty((rows, self.spec.vocab_size), np.float32)
        native = [lane.native for lane in lanes]
        self.native.forward(native, arrays, list(tentative), list(logits_from), logits, streams)
        for lane, fresh, drafts in zip(lanes, arrays, tentative, strict=True):
            lane.advance(fresh.tolist(), drafts)
        return logits

    def draft(
        self, lanes: Sequence[Lane], tokens: Sequence[int], depth: int, least: Sequence[float] | None = None
    ) -> tuple[I64, F32]:
        """Greedy drafts of the MTP block, int64 (lanes, depth): what may follow tokens[i], the next token of lane i.

        With them what the block says of the chance that they stand up to there, (lanes, depth). A chain ends (-1 and 0
        from there on) before that chance falls below least[i].
        """
        self._reach(max((lane.length + depth for lane in lanes), default=0))
        drafts, chances = np.empty((len(lanes), depth), np.int64), np.empty((len(lanes), depth), np.float32)
        limits = np.zeros(len(lanes), np.float32) if least is None else np.asarray(least, np.float32)
        self.native.draft([lane.native for lane in lanes], np.asarray(tokens, np.int64), limits, drafts, chances)
        return drafts, chances

    def mtp(self, lanes: Sequence[Lane], counts: Sequence[int], streams: F32, tokens: I64) -> tuple[F32, F32]:
        """The MTP block on `counts[i]` rows for each lane (made without drafts): logits and its own streams.

        streams (rows, S*D) of the trunk or the block's own; tokens (rows,), the one after each row's position.
        """
        self._reach(max((self._mtp_length(lane) + n for lane, n in zip(lanes, counts, strict=True)), default=0))
        logits = np.empty((len(streams), self.spec.vocab_size), np.float32)
        out = np.empty_like(streams)
        native = [lane.native for lane in lanes]
        self.native.mtp(native, list(counts), streams, np.ascontiguousarray(tokens, np.int64), logits, out)
        return logits, out

    def _mtp_length(self, lane: Lane) -> int:
        return lane.native.cache_lengths(sum(kind != "delta" for kind in self.spec.kinds))[0]

    def _reach(self, positions: int) -> None:
        """Make the rope table reach `positions`; it doubles, so that it is made again a few times at most."""
        if positions > self.native.positions:
            size = max(FIRST_POSITIONS, self.native.positions)
            while size < positions:
                size *= 2
            cos, sin = self._rope.at(np.arange(size))
            self.native.set_rope(np.ascontiguousarray(cos), np.ascontiguousarray(sin))

    def _matrix(self, w: Matrix) -> "_native.Matrix":
        known = self._matrices.get(id(w))
        if known is None:
            known = self._matrices[id(w)] = (w, native_matrix(w))
        return known[1]


def available_cores() -> int:
    """Physical cores that this process may use: its affinity, one thread a core, and its control group's quota."""
    return _native.available_cores()


