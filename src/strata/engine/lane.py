"""A lane: one request with its conversation's state, from admission to its finish. No clock, no lines, no model."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from strata.arithmetic.penalties import Penalties, Recent
from strata.arithmetic.sampling import Sampling
from strata.engine.constraint import Constraint
from strata.engine.lookup import FORCED, NOTHING, Lookup, Proposal
from strata.engine.protocol import CONTEXT_RESERVE, Gen
from strata.engine.scheduler import Demand
from strata.errors import RequestError

if TYPE_CHECKING:
    from strata.memory import Admission, Why
    from strata.model import LaneState

INDEXED_A_WINDOW = 4096
"""Tokens of a long history that one window adds to the index of repetitions, so that no window waits for all."""

LEAST_TEMPERATURE = 1e-6
"""Below it a request is greedy: only equal logits could be told apart, and fp32 would overflow."""


class Phase(Enum):
    READING = "reading"
    DECODING = "decoding"
    DONE = "done"


def check(request: Gen, *, context: int, vocabulary: int) -> None:
    """Raises RequestError (the text after `ERR `) for a request that this engine cannot serve as asked.

    In a slot or lane only the prompt has to fit: an answer ends at the context.
    """
    count = len(request.ids)
    if request.max_new < 1:
        raise RequestError(f"bad request: max_new must be at least 1, not {request.max_new}")
    wanted = request.max_new if request.slot is None else 1
    if count + wanted > context - CONTEXT_RESERVE:
        raise RequestError(f"prompt ({count} tokens) + max_new ({wanted}) exceeds the context ({context})")
    if max(request.ids) >= vocabulary:
        raise RequestError(f"bad request: token id {max(request.ids)} is outside the vocabulary of {vocabulary}")
    for name, ids in (("logit_bias", [token for token, _ in request.logit_bias]), ("stop_ids", request.stop_ids)):
        if ids and max(ids) >= vocabulary:
            raise RequestError(f"bad request: {name} names token {max(ids)}, outside the vocabulary of {vocabulary}")


@dataclass(frozen=True, slots=True)
class Ends:
    """What ends every lane of an engine: positions of the context, and end tokens."""

    context: int
    eos_ids: frozenset[int]


class Lane:
    """`tokens` are the prompt and what was drawn since; the state holds (has computed) the first `held` of them.

    The lane is READING while prompt tokens wait, then DECODING (exactly the last drawn token waits) until `finish` is
    set. `marks` are prompt positions at which a window has to end, because the state there will be kept.
    """

    def __init__(
        self,
        number: int,
        request: Gen,
        admission: "Admission[LaneState]",
        ends: Ends,
        *,
        seed: int,
        marks: "Mapping[int, Why] | None" = None,
        constraint: Constraint | None = None,
    ) -> None:
        self.number = number
        self.request = request
        self.admission = admission
        self.tokens = list(request.ids)
        self.prompt = len(request.ids)
        self.reused = admission.reused
        self.finish: str | None = None
        temperature = request.temperature if request.temperature >= LEAST_TEMPERATURE else 0.0
        self.sampling = Sampling(temperature, request.top_p, request.top_k, request.min_p, seed)
        self.penalties = Penalties(
            request.penalty_last_n, request.penalty_repeat, request.penalty_freq, request.penalty_present,
            dict(request.logit_bias),
        )  # fmt: skip
        self.recent = Recent(request.penalty_last_n if self.penalties.looks_back else 0, self.tokens)
        self.marks = dict(marks or {})
        self.constraint = constraint
        self.offered = self.stood = 0
        self._context = ends.context
        self._eos_ids = ends.eos_ids.union(request.stop_ids)
        self._history = Lookup()

    @property
    def state(self) -> "LaneState":
        return self.admission.state

    @property
    def held(self) -> int:
        return self.admission.state.length

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt

    @property
    def phase(self) -> Phase:
        if self.finish is not None:
            return Phase.DONE
        return Phase.READING if self.held < self.prompt else Phase.DECODING

    @property
    def room(self) -> int:
        """Drafts that may follow the last known token: tokens are left for them and one more, and positions."""
        return max(0, min(self.request.max_new - self.generated - 1, self._context - len(self.tokens)))

    def demand(self, *, mtp: bool, lookup: int) -> Demand:
        """What the scheduler needs to know; for a lane that is not done. `lookup`: most drafts from its history."""
        held, known = self.held, len(self.tokens)
        if held >= self.prompt:
            return Demand(self.number, held, known, known, False, self.room, mtp, self._found(min(lookup, self.room)))
        pause = next((mark for mark in self.marks if mark > held), known)
        return Demand(self.number, held, known, pause, reading=True)

    def _found(self, depth: int) -> Proposal:
        """Drafts that a grammar forces, or those from the lane's own history, once it is indexed."""
        if depth < 1:
            return NOTHING
        if self.constraint is not None and (forced := self.constraint.forced(depth)):
            return Proposal(forced, FORCED)
        at = len(self._history)
        self._history.extend(self.tokens[at : at + INDEXED_A_WINDOW])
        found = self._history.draft(depth) if len(self._history) == len(self.tokens) else NOTHING
        if self.constraint is None or not found.tokens:
            return found
        fitting = tuple(self.constraint.fitting(found.tokens))
        return Proposal(fitting, found.matched) if fitting else NOTHING

    def upcoming(self, count: int) -> list[int]:
        """The next `count` tokens to compute."""
        held = self.held
        return self.tokens[held : held + count]

    def accept(self, token: int, *, stopped: bool) -> None:
        """Append a drawn token and decide whether it was the last: end token, then STOP, then max_new, then context.

        The last token of a conversation is never computed, so a prompt of P can draw C - P + 1 tokens in a context C.
        """
        self.tokens.append(token)
        if self.constraint is not None:
            self.constraint.advance(token)
        self.recent.append(token)
        if token in self._eos_ids:
            self.finish = "stop"
        elif stopped:
            self.finish = "cancel"
        elif self.generated >= self.request.max_new or len(self.tokens) > self._context:
            self.finish = "length"
