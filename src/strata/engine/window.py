"""A window: the segments of all lanes that have a turn, computed by one forward pass."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from strata.engine.lane import Lane
from strata.engine.scheduler import Turn
from strata.errors import EngineError
from strata.model import Segment

if TYPE_CHECKING:
    from strata.model import Model


def compute(model: "Model", lanes: Mapping[int, Lane], turns: Sequence[Turn]) -> dict[int, npt.NDArray[np.float32]]:
    """Advance the state of every lane that has a turn; the logits (vocabulary,) of those that draw, by lane number.

    Raises EngineError if the model did not return one row for each of them.
    """
    drawing = [turn.lane for turn in turns if turn.draws]
    logits = model.forward([_segment(lanes[turn.lane], turn) for turn in turns])
    if len(logits) != len(drawing):
        raise EngineError(f"The model returned {len(logits)} rows of logits, {len(drawing)} were asked for.")
    return dict(zip(drawing, logits, strict=True))


def _segment(lane: Lane, turn: Turn) -> Segment:
    return Segment(lane.state, lane.upcoming(turn.count), turn.count - 1 if turn.draws else turn.count)
