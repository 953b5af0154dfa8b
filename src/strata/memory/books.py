"""The live side of the memory: the pool's chunks, the tree's states, and whose they are. One change keeps all three."""

from collections.abc import Iterator
from typing import Generic

from strata.memory.conversations import Conversation, Live, Spot, SpotNode, live_of
from strata.memory.files import S
from strata.memory.marks import Why
from strata.memory.parking import Parked
from strata.memory.policy import Action, Asking, Idle, Rank, Situation, decide
from strata.memory.pool import Pool
from strata.memory.sizes import Sizes
from strata.memory.tokens import Tokens
from strata.memory.tree import Tree


class Books(Generic[S]):
    """Live states in the pool and the tree, and their conversations, by number."""

    def __init__(self, pool: Pool, sizes: Sizes) -> None:
        self.pool = pool
        self.sizes = sizes
        self.tree: Tree[Spot[S]] = Tree()
        self.conversations: dict[int, Conversation[S]] = {}
        self._number = 0
        self._time = 0
        self.changes = 0  # states that came to a conversation

    def now(self) -> int:
        """A clock of uses."""
        self._time += 1
        return self._time

    def open(self, place: int, standing: Why | None = None) -> Conversation[S]:
        """A new conversation without states."""
        self._number += 1
        opened: Conversation[S] = Conversation(self._number, place, self.now(), standing=standing)
        self.conversations[opened.number] = opened
        return opened

    def idle(self) -> Iterator[Conversation[S]]:
        """Conversations that no request has, longest unused first."""
        yield from sorted((c for c in self.conversations.values() if not c.active), key=lambda c: (c.used, c.place))

    def keep(self, tokens: Tokens, state: S, holder: int, why: Why, node: SpotNode[S] | None) -> SpotNode[S]:
        """Put a state with its chunks at its tokens, where no live one is; `node`: what the tree has there."""
        size = self.sizes.state + self.pool.own(holder) * self.sizes.chunk
        if node is None:
            node = self.tree.insert(tokens, Spot(), size=size)
        assert node.value is not None
        assert node.value.live is None
        node.value.live = Live(state, holder, why)
        node.size, node.pinned = size, why is Why.PIN
        return node

    def own(self, conversation: Conversation[S], node: SpotNode[S], *, end: bool = False) -> None:
        """The conversation owns the live state at a node from now on."""
        self.changes += 1
        live_of(node).owners.add(conversation.number)
        if end:
            assert conversation.end is None
            conversation.end = node
            conversation.checkpoints = [one for one in conversation.checkpoints if one is not node]
        elif node not in conversation.nodes:
            conversation.checkpoints = sorted([*conversation.checkpoints, node], key=lambda one: one.length)

    def disown(self, conversation: Conversation[S], node: SpotNode[S]) -> None:
        """The conversation owns it no longer; what nobody owns goes, and so does a conversation without states."""
        if conversation.end is node:
            conversation.end = None
        conversation.checkpoints = [one for one in conversation.checkpoints if one is not node]
        live = live_of(node)
        live.owners.discard(conversation.number)
        if not live.owners:
            self.pool.release(live.holder)
            self._vacate(node)
        if not conversation.nodes and not conversation.active:
            self.conversations.pop(conversation.number, None)

    def take(self, conversation: Conversation[S]) -> Live[S]:
        """The end of a conversation that nobody else owns leaves the tree, with its chunks."""
        node = conversation.end
        assert node is not None
        live = live_of(node)
        conversation.end = None
        self._vacate(node)
        return live

    def evict(self, node: SpotNode[S]) -> None:
        """A state goes, whoever owns it."""
        self.tree.passed(node)
        for number in list(live_of(node).owners):
            self.disown(self.conversations[number], node)

    def forget(self, conversation: Conversation[S]) -> None:
        """A conversation goes, with all that it alone owns."""
        conversation.active = False
        for node in conversation.nodes:
            self.disown(conversation, node)
        self.conversations.pop(conversation.number, None)

    def parked(self, parked: Parked[S]) -> None:
        """List a parked conversation's states in the tree."""
        for index, length in enumerate(parked.lengths):
            tokens = parked.tokens[:length]
            node = self.tree.at(tokens) or self.tree.insert(tokens, Spot(), size=self.sizes.state)
            assert node.value is not None
            node.value.parked[parked] = index

    def lost(self, parked: Parked[S]) -> None:
        """A parked conversation is gone."""
        for length in parked.lengths:
            node = self.tree.at(parked.tokens[:length])
            if node is not None and node.value is not None and parked in node.value.parked:
                del node.value.parked[parked]
                self._tidy(node)

    def plan(self, asking: Asking, need: int, replaced: Conversation[S] | None = None) -> list[Action]:
        """What the policy says to a need; a conversation that is `replaced` anyway is the first to give way."""
        if need <= self.pool.free:
            return []
        owners: dict[int, int] = {}
        asked = []
        for one in self.idle():
            holders = tuple(live.holder for live in one.lives())
            used = -1 if one is replaced else one.used
            asked.append(Idle(one.number, Rank.EMPTY if one is replaced else one.rank, used, one.place, holders))
        for one in self.conversations.values():
            for live in one.lives():
                owners[live.holder] = owners.get(live.holder, 0) + 1
        pool = self.pool
        return decide(Situation(asking, need, pool.free, pool.tokens, asked, pool.tables, pool.references, owners))

    def _vacate(self, node: SpotNode[S]) -> None:
        assert node.value is not None
        node.value.live = None
        node.pinned = False
        self._tidy(node)

    def _tidy(self, node: SpotNode[S]) -> None:
        if node.value is not None and node.value.live is None and not node.value.parked:
            self.tree.remove(node)
