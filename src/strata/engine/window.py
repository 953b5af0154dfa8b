"""A window carried out: drafts proposed, rows computed by one forward pass, tokens drawn, drafts judged."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from strata.arithmetic.penalties import penalized_rows
from strata.engine.acceptance import MTP
from strata.engine.constraint import Constraint
from strata.engine.lane import Lane
from strata.engine.logprobs import LogProbs, logprobs
from strata.engine.lookup import Proposal
from strata.engine.scheduler import LOOKUP, Turn, Verdict, Window
from strata.errors import EngineError, RequestError
from strata.model import Segment

if TYPE_CHECKING:
    from strata.model import Model

Rows = npt.NDArray[np.float32]
Trim = Callable[[Window, Mapping[int, Sequence[float]]], Window]
ENDED = -1
"""What `Model.draft_chains` gives past a chain's end."""


@dataclass(slots=True)
class Drawn:
    """What a lane's turn gave: tokens, their log-probabilities where asked for, the verdict on its drafts.

    `error`: why the lane cannot go on.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[LogProbs] = field(default_factory=list)
    verdict: Verdict | None = None
    error: RequestError | None = None


def propose(
    model: "Model", lanes: Mapping[int, Lane], window: Window, found: Mapping[int, Proposal], trim: Trim
) -> tuple[Window, dict[int, list[int]]]:
    """The drafts of every turn that has some, by lane, and the window that verifies them.

    Lookup's are those `found`; chains of the MTP block end where it likes them less than `window.least`, and `trim`
    (`Scheduler.trimmed`) drops what is not worth its row.
    """
    drafting = [turn for turn in window.turns if turn.source == MTP]
    made: dict[int, list[int]] = {}
    if drafting:
        chosen = [lanes[turn.lane] for turn in drafting]
        least = [window.least.get(turn.lane, 0.0) for turn in drafting]
        tokens, chances = model.draft_chains(
            [lane.state for lane in chosen], [lane.tokens[-1] for lane in chosen], window.draft_depth, least
        )
        said: dict[int, list[float]] = {}
        for turn, row, likely in zip(drafting, tokens.tolist(), chances.tolist(), strict=True):
            length = row.index(ENDED) if ENDED in row else len(row)
            made[turn.lane], said[turn.lane] = row[:length], likely[:length]
        window = trim(window, said)
    made.update({turn.lane: list(found[turn.lane].tokens) for turn in window.turns if turn.source == LOOKUP})
    return window, {turn.lane: made[turn.lane][: turn.drafts] for turn in window.turns if turn.drafts}


def compute(
    model: "Model", lanes: Mapping[int, Lane], turns: Sequence[Turn], drafts: Mapping[int, Sequence[int]]
) -> dict[int, Rows]:
    """Advance the state of every lane that has a turn; logits (1 + drafts, vocabulary) of those that draw, by lane.

    Raises EngineError if the model did not return one row for each of them.
    """
    logits = model.forward([_segment(lanes[turn.lane], turn, drafts.get(turn.lane, ())) for turn in turns])
    wanted = sum(1 + turn.drafts for turn in turns if turn.draws)
    if len(logits) != wanted:
        raise EngineError(f"The model returned {len(logits)} rows of logits, {wanted} were asked for.")
    rows, at = {}, 0
    for turn in turns:
        if turn.draws:
            rows[turn.lane] = logits[at : at + 1 + turn.drafts]
            at += 1 + turn.drafts
    return rows


def _segment(lane: Lane, turn: Turn, drafts: Sequence[int]) -> Segment:
    tokens = [*lane.upcoming(turn.count), *drafts]
    return Segment(lane.state, tokens, turn.count - 1 if turn.draws else turn.count, len(drafts))


def _constrained(row: npt.NDArray[np.float32], constraint: Constraint | None) -> npt.NDArray[np.float32]:
    """One row of logits (V,), minus infinity where the grammar forbids a token. Raises RequestError if none is left."""
    if constraint is None:
        return row
    masked = np.where(constraint.allowed(), row, np.float32(-np.inf))
    if masked.max() == -np.inf:
        raise RequestError("bad request: grammar: logit_bias bans every token that it allows here")
    return masked


def draw(model: "Model", lane: Lane, logits: Rows, drafts: Sequence[int], *, stopped: bool) -> Drawn:
    """Draw from each row while the token before it stands: a draft stands if it is what its row's predecessor drew.

    The lane has the new tokens, and its state the rows of those that stood and were not its last.
    """
    drawn = Drawn()
    stood = 0
    try:
        rows = penalized_rows(logits, lane.penalties, lane.recent, drafts)
        for at, row in enumerate(rows):
            token = model.sample(_constrained(row, lane.constraint), lane.sampling, choice=0, position=len(lane.tokens))
            if lane.request.logprobs is not None:
                drawn.logprobs.append(logprobs(row, token, lane.request.logprobs))
            lane.accept(token, stopped=stopped)
            drawn.tokens.append(token)
            if lane.finish is not None or at == len(drafts) or drafts[at] != token:
                break
            stood += 1
    except RequestError as error:
        drawn.error = error
        return drawn
    if drafts:
        lane.state.accept(stood)
        lane.offered += len(drafts)
        lane.stood += stood
        drawn.verdict = Verdict(stood, refused=stood < len(drafts) and drafts[stood] != drawn.tokens[-1])
    return drawn
