"""What the memory manager keeps books of: states in the tree, and the conversations that own them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeGuard

import numpy as np

from strata.memory.files import S
from strata.memory.marks import Why
from strata.memory.parking import Parked
from strata.memory.policy import Rank
from strata.memory.tokens import Tokens, packed
from strata.memory.tree import Node

MAIN = -1
"""The place of requests on the control lines; slots are 0 and up, conversations without a place stand last."""
NOWHERE = 1 << 30


@dataclass(eq=False, slots=True)
class Live(Generic[S]):
    """A state whose keys and values are in the pool, under `holder`. `owners`: numbers of conversations."""

    state: S
    holder: int
    why: Why
    owners: set[int] = field(default_factory=set)


@dataclass(eq=False, slots=True)
class Spot(Generic[S]):
    """What the tree has at some tokens: a live state, parked ones (with their index there), or both."""

    live: Live[S] | None = None
    parked: dict[Parked[S], int] = field(default_factory=dict)


SpotNode = Node[Spot[S]]


@dataclass(eq=False, slots=True)
class Conversation(Generic[S]):
    """One conversation, or one prefix that is kept for its own sake (a root, a pin: `standing`).

    `end` is the state after its last request, `checkpoints` those on its path. `active`: a request has it. `file`: the
    parked version that it came from.
    """

    number: int
    place: int = NOWHERE
    used: int = 0
    active: bool = False
    gave_way: bool = False
    standing: Why | None = None
    end: SpotNode[S] | None = None
    checkpoints: list[SpotNode[S]] = field(default_factory=list)
    files: list[Parked[S]] = field(default_factory=list)

    @property
    def nodes(self) -> list[SpotNode[S]]:
        return [*self.checkpoints, *([] if self.end is None else [self.end])]

    @property
    def rank(self) -> Rank:
        """When it is asked to give way. Checkpoints left of a conversation that was lost are no conversation."""
        if self.standing is Why.PIN:
            return Rank.PINNED
        if self.gave_way:
            return Rank.GAVE_WAY
        return Rank.EMPTY if self.end is None and self.standing is None else Rank.CACHED

    def lives(self) -> Iterator[Live[S]]:
        for node in self.nodes:
            yield live_of(node)


@dataclass(eq=False, slots=True)
class Admission(Generic[S]):
    """A request that was admitted: the state to advance, how much of the prompt it holds already, and its chunks.

    The state is to hold the prompt, or a beginning of it, and then what was drawn. `shared`: how much of the prompt
    some kept conversation begins with (for `marks`; at least what is reused). `conversation` is None for a one-shot
    request, of which nothing is kept.
    """

    state: S
    reused: int
    holder: int
    place: int
    conversation: Conversation[S] | None
    prompt: Tokens
    shared: int = 0
    made: list[tuple[SpotNode[S], Live[S]]] = field(default_factory=list)

    @property
    def tokens(self) -> Tokens:
        """The tokens that the state holds."""
        known, length = len(self.prompt), self.state.length
        if length <= known:
            return self.prompt[:length]
        return np.concatenate([self.prompt, packed(self.state.tokens[known:])])


def has_live(node: SpotNode[S] | None) -> TypeGuard[SpotNode[S]]:
    """Whether there is a live state at a node."""
    return node is not None and node.value is not None and node.value.live is not None


def live_of(node: SpotNode[S]) -> Live[S]:
    """The live state at a node that has one."""
    assert node.value is not None
    assert node.value.live is not None
    return node.value.live
