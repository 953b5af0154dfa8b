"""Where a prompt's state is kept while it is read: the windows have to end there."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from strata.memory.tokens import Tokens, packed


class Why(Enum):
    """Why a state is kept."""

    END = "end"  # of a conversation, after its request
    TURN = "turn"  # before the opening of the prompt's last turn
    PERIODIC = "periodic"
    ROOT = "root"  # end of the system prompt
    PIN = "pin"


@dataclass(frozen=True, slots=True)
class Marking:
    """`every` tokens (--prompt-cache-every; 0: never), roots of at least `root` tokens (--prompt-cache-root; 0: none),
    and the token that opens a turn (None: the vocabulary has none)."""

    turn_id: int | None
    every: int = 16384
    root: int = 2048


SHARED = 256
"""A beginning that is longer than what was resumed from by so many tokens is worth a state where prompts part."""


def marks(
    prompt: Sequence[int] | Tokens, reused: int, pin: int, marking: Marking, *, shared: int = 0, keep: bool = True
) -> dict[int, Why]:
    """Positions after `reused`, ascending, and why the state there is kept; the most lasting reason where two meet.

    `keep=False` (a one-shot request): only the root, which is made where it costs nobody anything.
    Periodic ones stand at multiples of `every`, so that conversations with one beginning meet there. `shared`: tokens
    that another conversation begins with too; a third may part there as well.
    """
    found: dict[int, Why] = {}
    if keep and shared >= reused + SHARED:
        found[shared] = Why.PERIODIC
    if keep and marking.every:
        found |= dict.fromkeys(range(marking.every, len(prompt), marking.every), Why.PERIODIC)
    if marking.turn_id is not None:
        opened = np.flatnonzero(packed(prompt) == marking.turn_id).tolist()
        if keep and opened:
            found[opened[-1]] = Why.TURN
        # A system prompt, a question and the answer's opening: with fewer there is nothing to share.
        if marking.root and reused == 0 and len(opened) > 2 and opened[1] >= marking.root:
            found[opened[1]] = Why.ROOT
    if keep and pin:
        found[pin] = Why.PIN
    return {at: found[at] for at in sorted(found) if reused < at <= len(prompt)}
