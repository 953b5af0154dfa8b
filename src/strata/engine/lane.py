"""A lane: one request with its conversation's state, from admission to its finish. No clock, no lines, no model."""

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING

from strata.arithmetic.sampling import Sampling
from strata.engine.protocol import CONTEXT_RESERVE, Gen
from strata.engine.scheduler import Demand
from strata.errors import RequestError

if TYPE_CHECKING:
    from strata.model import LaneState


class Phase(Enum):
    READING = "reading"
    DECODING = "decoding"
    DONE = "done"


def check(request: Gen, *, context: int, vocabulary: int) -> None:
    """Raises RequestError (the text after `ERR `) for a request that this engine cannot serve as asked."""
    count = len(request.ids)
    if request.max_new < 1:
        raise RequestError(f"bad request: max_new must be at least 1, not {request.max_new}")
    if count + request.max_new > context - CONTEXT_RESERVE:
        raise RequestError(f"prompt ({count} tokens) + max_new ({request.max_new}) exceeds the context ({context})")
    if max(request.ids) >= vocabulary:
        raise RequestError(f"bad request: token id {max(request.ids)} is outside the vocabulary of {vocabulary}")
    if (request.penalty_repeat, request.penalty_freq, request.penalty_present) != (1.0, 0.0, 0.0):
        raise RequestError("bad request: penalties are not implemented yet: send penalty_repeat=1, penalty_freq=0 and "
                           "penalty_present=0, or none of them")  # fmt: skip


def turn_start(ids: Sequence[int], turn_id: int | None) -> int:
    """How many tokens stand before the last turn's opening token; 0 if there is none."""
    if turn_id is None:
        return 0
    return next((at for at in range(len(ids) - 1, 0, -1) if ids[at] == turn_id), 0)


class Lane:
    """`tokens` are the prompt and what was drawn since; the state holds (has computed) the first `held` of them.

    The lane is READING while prompt tokens wait, then DECODING (exactly the last drawn token waits) until `finish` is
    set. `marks` are prompt positions at which a window has to end, because the state there will be kept.
    """

    def __init__(
        self,
        number: int,
        request: Gen,
        state: "LaneState",
        *,
        seed: int,
        context: int,
        eos_ids: Sequence[int],
        marks: Sequence[int] = (),
    ) -> None:
        self.number = number
        self.request = request
        self.state = state
        self.tokens = list(request.ids)
        self.prompt = len(request.ids)
        self.reused = state.length
        self.finish: str | None = None
        self.sampling = Sampling(request.temperature, request.top_p, request.top_k, request.min_p, seed)
        self._context = context
        self._eos_ids = frozenset(eos_ids)
        self._marks = sorted(mark for mark in marks if mark <= self.prompt)

    @property
    def held(self) -> int:
        return self.state.length

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt

    @property
    def phase(self) -> Phase:
        if self.finish is not None:
            return Phase.DONE
        return Phase.READING if self.held < self.prompt else Phase.DECODING

    @property
    def at_mark(self) -> bool:
        """Whether the state stands exactly where it is to be kept."""
        return self.held in self._marks

    def demand(self) -> Demand:
        """What the scheduler needs to know; only for a lane that is not done."""
        held, known = self.held, len(self.tokens)
        pause = next((mark for mark in self._marks if mark > held), known)
        return Demand(self.number, held, known, pause, reading=self.phase is Phase.READING)

    def upcoming(self, count: int) -> list[int]:
        """The next `count` tokens to compute."""
        return self.tokens[self.held : self.held + count]

    def accept(self, token: int, *, stopped: bool) -> None:
        """Append a drawn token and decide whether it was the last: end token, then STOP, then max_new, then context.

        The last token of a conversation is never computed, so a prompt of P can draw C - P + 1 tokens in a context C.
        """
        self.tokens.append(token)
        if token in self._eos_ids:
            self.finish = "stop"
        elif stopped:
            self.finish = "cancel"
        elif self.generated >= self.request.max_new or len(self.tokens) > self._context:
            self.finish = "length"

    def cancel(self) -> None:
        self.finish = "cancel"
