"""The numpy reference behind the interface of `strata.cpu.model`: drafts by copying, the MTP block without a hurry."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from strata.arithmetic import LaneState, MtpSegment, Reference, Segment
from strata.arithmetic.sampling import Sampling, argmax, sample
from strata.arithmetic.types import F32, I64
from strata.errors import UsageError
from strata.model.reference_state import Array, restored, sections, shortened


class ReferenceLane:
    """A conversation of the numpy reference. The states of undecided rows are computed again when they are accepted."""

    def __init__(self, reference: Reference, drafts: bool) -> None:
        self._reference = reference
        self.state = LaneState.empty(reference.spec)
        self.drafts = drafts
        self.tentative: list[int] = []
        self.waiting: list[F32] = []  # trunk streams (S, D) of the positions that the MTP block has not read

    @property
    def tokens(self) -> list[int]:
        """The tokens held."""
        return self.state.tokens

    @property
    def length(self) -> int:
        """Tokens held, undecided ones not counted."""
        return self.state.length

    @property
    def undecided(self) -> int:
        """Rows of the last window's drafts that `accept` has not decided about."""
        return len(self.tentative)

    def advance(self, tokens: Sequence[int], tentative: int) -> F32:
        """The streams (rows, S, D) of new tokens; the last `tentative` stay undecided."""
        self._need_decided()
        cut = len(tokens) - tentative
        parts = [self._trunk(self.state, tokens[:cut])]
        self._wait(parts[0])
        if tentative:
            parts.append(self._trunk(self.state.copy(), tokens[cut:]))
            self.tentative = [int(t) for t in tokens[cut:]]
        return np.concatenate(parts)

    def accept(self, count: int) -> None:
        """Keep the first `count` undecided rows and forget the others."""
        if not 0 <= count <= self.undecided:
            raise UsageError(f"{count} rows were accepted, but {self.undecided} are undecided.")
        self._wait(self._trunk(self.state, self.tentative[:count]))
        self.tentative = []

    def copy(self) -> "ReferenceLane":
        """A checkpoint: either may go on without the other."""
        self._need_decided()
        twin = ReferenceLane(self._reference, self.drafts)
        twin.state, twin.waiting = self.state.copy(), list(self.waiting)
        return twin

    def settle(self) -> None:
        """The MTP block reads every position whose next token is known: the last alone waits."""
        self._need_decided()
        known = len(self.waiting) - 1
        if known > 0:
            first = self.length - known
            with np.errstate(all="ignore"):
                self._mtp(self.state, self.waiting[:known], self.tokens[first:])
            self.waiting = self.waiting[known:]

    def sections(self, *, rows: bool = True) -> Iterator[tuple[str, Array]]:
        """The arrays of `cpu.lane.Lane.sections`, by the same names."""
        self._need_decided()
        yield from sections(self.state, self.waiting if self.drafts else None, self._reference.kv, rows=rows)

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Become the conversation of these sections, whichever path saved it; errors as `cpu.lane.Lane.restore`."""
        reference = self._reference
        self.state, self.waiting = restored(reference.spec, reference.kv, self.drafts, arrays)
        self.tentative = []

    def shorter(self, length: int, arrays: Mapping[str, Array]) -> "ReferenceLane":
        """The state after the first `length` tokens: this one's cache rows, the rest from `sections(rows=False)`."""
        self._need_decided()
        twin = ReferenceLane(self._reference, self.drafts)
        waiting = self.waiting if self.drafts else None
        twin.state, twin.waiting = shortened(self.state, waiting, length, self._reference.kv, arrays)
        return twin

    def draft(self, token: int, depth: int) -> Iterator[tuple[int, float]]:
        """Greedy drafts of what may follow `token`, the next one of the conversation, each with its own chance."""
        assert self.state.mtp is not None
        self.settle()
        trial, streams = self.state.copy(), self.waiting[0]
        for _ in range(depth):
            logits, streams = self._mtp(trial, [streams], [token])
            token = argmax(logits)
            yield token, 1 / float(np.exp(logits - logits[token], dtype=np.float64).sum())

    def _need_decided(self) -> None:
        if self.tentative:
            raise UsageError(f"The conversation has {self.undecided} undecided rows; accept has to be called first.")

    def _trunk(self, state: LaneState, tokens: Sequence[int]) -> F32:
        spec = self._reference.spec
        if not len(tokens):
            return np.empty((0, spec.streams, spec.hidden), np.float32)
        return self._reference.trunk([Segment(state, tokens, 0)])

    def _mtp(self, state: LaneState, streams: Sequence[F32], tokens: Sequence[int]) -> tuple[F32, F32]:
        assert state.mtp is not None
        logits, out = self._reference.mtp([MtpSegment(state.mtp, np.stack(streams), tokens)])
        return logits[-1], out[-1]

    def _wait(self, streams: F32) -> None:
        if self.drafts:
            self.waiting.extend(streams)


class ReferencePath:
    """A model computed by numpy."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.kv = reference.kv
        self.threads = 1
        self.computed_by = "reference"

    def sample(self, logits: F32, sampling: Sampling, *, choice: int, position: int) -> int:
        """Draw the token at `position` from one row of logits (V,)."""
        return sample(logits, sampling, choice=choice, position=position)

    def new_lane(self, drafts: bool = False) -> ReferenceLane:
        """An empty conversation; `drafts`: the MTP block follows it."""
        if drafts and not self.reference.spec.mtp_layers:
            raise UsageError("The model has no MTP block, so it cannot draft.")
        return ReferenceLane(self.reference, drafts)

    def forward(
        self,
        lanes: Sequence[ReferenceLane],
        tokens: Sequence[Sequence[int]],
        tentative: Sequence[int],
        logits_from: Sequence[int],
    ) -> F32:
        """Advance lane i by tokens[i], the last tentative[i] undecided; logits of the rows from logits_from[i] on."""
        with np.errstate(all="ignore"):  # infinities and NaN are the row's own result
            streams = [
                lane.advance(fresh, drafts)[first:]
                for lane, fresh, drafts, first in zip(lanes, tokens, tentative, logits_from, strict=True)
            ]
            wanted = np.concatenate(streams) if streams else np.empty((0, 1, 1), np.float32)
            if not len(wanted):
                return np.empty((0, self.reference.spec.vocab_size), np.float32)
            return self.reference.logits(wanted, self.reference.weights.head)

    def draft(
        self, lanes: Sequence[ReferenceLane], tokens: Sequence[int], depth: int, least: Sequence[float] | None = None
    ) -> tuple[I64, F32]:
        """Greedy drafts of the MTP block, int64 (lanes, depth), chances of their chains; -1 and 0 past an end."""
        drafts, chances = np.full((len(lanes), depth), -1, np.int64), np.zeros((len(lanes), depth), np.float32)
        with np.errstate(all="ignore"):
            for i, (lane, token) in enumerate(zip(lanes, tokens, strict=True)):
                chain = 1.0
                for d, (draft, chance) in enumerate(lane.draft(int(token), depth)):
                    chain *= chance
                    if least is not None and chain < least[i]:
                        break
                    drafts[i, d], chances[i, d] = draft, chain
        return drafts, chances
