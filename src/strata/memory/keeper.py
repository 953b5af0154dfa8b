"""Who gives way and what is kept: the policy's decisions carried out, parking, and the limits of kept states."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic

from strata import logs
from strata.memory.books import Books
from strata.memory.conversations import NOWHERE, Conversation, SpotNode, has_live, live_of
from strata.memory.files import S
from strata.memory.marks import Why
from strata.memory.parking import Parking, ParkingLimits
from strata.memory.policy import Asking, End, GiveWay, PoolFull, Refuse, Skip
from strata.memory.pool import CHUNK, chunks
from strata.memory.tokens import Tokens
from strata.units import bytes_text

log = logs.get("memory")


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """What the engine was started with.

    `checkpoints` a conversation (--prompt-cache; 0: none), `state_bytes` of all kept states beside their chunks,
    `conversations` that are kept idle.
    """

    pool_tokens: int
    checkpoints: int = 6
    state_bytes: int = 1 << 30
    conversations: int = 32
    parking: ParkingLimits = field(default_factory=ParkingLimits)


class Keeper(Generic[S]):
    """The books with their limits and the parking behind them."""

    def __init__(self, limits: MemoryLimits, books: Books[S], parking: Parking[S]) -> None:
        self.limits = limits
        self.books = books
        self.parking = parking

    def idle_at(self, place: int) -> Conversation[S] | None:
        """The idle conversation of a place, the one used last."""
        found = [one for one in self.books.idle() if one.place == place and one.standing is None]
        return found[-1] if found and place != NOWHERE else None

    def make_room(self, asking: Asking, need: int, replaced: Conversation[S] | None = None) -> bool:
        """Have `need` chunks free, whoever has to give way; False for a lane that ends or a checkpoint not made.

        Raises PoolFull for a request. Nobody gives way unless the need is met.
        """
        for action in self.books.plan(asking, need, replaced):
            match action:
                case Refuse(reason):
                    raise PoolFull(reason)
                case End() | Skip():
                    return False
                case GiveWay(name) if name in self.books.conversations:
                    self.give_way(self.books.conversations[name])
        return True

    def would_refuse(self, need: int, replaced: Conversation[S] | None) -> bool:
        """Whether a new request that needs so many chunks would be refused."""
        return any(isinstance(action, Refuse) for action in self.books.plan(Asking.ADMISSION, need, replaced))

    def give_way(self, conversation: Conversation[S]) -> None:
        """An idle conversation leaves the pool: parked if that is on and it is whole, else gone."""
        if conversation.number not in self.books.conversations:
            return
        if self.limits.parking.on and conversation.end is not None and conversation.standing is None:
            self._park(conversation)
        else:
            self.books.forget(conversation)

    def revive(self, tokens: Tokens, states: Sequence[S], place: int) -> Conversation[S]:
        """A conversation of states not yet in the pool (there is room); the longest, with `tokens`, is its end."""
        books, pool = self.books, self.books.pool
        conversation = books.open(place)
        first = pool.new()
        pool.reserve(first, 0, states[0].length)
        for state in states[1:]:
            node = books.tree.at(tokens[: state.length])
            if not has_live(node):
                holder = pool.share(first, state.length)
                if state.length % CHUNK:
                    pool.reserve(holder, state.length - 1, state.length)
                node = books.keep(tokens[: state.length], state, holder, Why.TURN, node)
            books.own(conversation, node)
        node = books.tree.at(tokens)
        if has_live(node):
            pool.release(first)
        else:
            node = books.keep(tokens, states[0], first, Why.END, node)
        books.own(conversation, node, end=True)
        return conversation

    def stand(self, node: SpotNode[S], why: Why) -> None:
        """A root or a pin: the state is kept for its own sake too. A pin stays one where a root is found."""
        live = live_of(node)
        standing = [self.books.conversations[n] for n in live.owners if self.books.conversations[n].standing]
        if not standing:
            self.books.own(self.books.open(NOWHERE, why), node)
        elif why is Why.PIN:
            standing[0].standing = why
        if live.why is not Why.PIN:
            live.why = why
        node.pinned = live.why is Why.PIN

    def limit_checkpoints(self, conversation: Conversation[S], made: SpotNode[S]) -> None:
        """Of a conversation's own checkpoints (no root, no pin) the least worth goes."""
        own = [node for node in conversation.checkpoints if live_of(node).why not in (Why.ROOT, Why.PIN)]
        if len(own) > self.limits.checkpoints:
            victim = self.books.tree.victim(lambda node: node in own and node is not made)
            if victim is not None:
                self.books.tree.passed(victim)
                self.books.disown(conversation, victim)

    def room(self) -> bool:
        """Whether one more state fits without any giving way."""
        return (self._states() + 1) * self.books.sizes.state <= self.limits.state_bytes and self.books.pool.free > 0

    def fit(self, made: SpotNode[S] | None = None) -> None:
        """Keep within the limits: idle conversations by age, reads that gave way last; states by worth, not `made`."""
        idle = [one for one in self.books.idle() if one.standing is None]
        idle.sort(key=lambda one: one.gave_way)
        for conversation in idle[: max(0, len(idle) - self.limits.conversations)]:
            self.give_way(conversation)
        while self._states() * self.books.sizes.state > self.limits.state_bytes:
            victim = self.books.tree.victim(lambda node: node is not made and has_live(node))
            if victim is None:
                return
            ends = [one for one in self.books.idle() if one.end is victim]
            if ends and self.limits.parking.on:
                self.books.tree.passed(victim)
                self.give_way(ends[0])
            else:
                self.books.evict(victim)

    def _states(self) -> int:
        return sum(has_live(node) for node in self.books.tree)

    def _park(self, conversation: Conversation[S]) -> None:
        books = self.books
        own = [live for live in reversed(list(conversation.lives())) if live.owners == {conversation.number}]
        if conversation.end is None or live_of(conversation.end) not in own:
            books.forget(conversation)  # another conversation ends at the same tokens and stays
            return
        states, tokens = [live.state for live in own], conversation.end.tokens()
        kv = sum(chunks(state.length) if state is states[0] else 1 for state in states) * books.sizes.chunk
        size = kv + sum(books.sizes.state + 8 * state.length for state in states)
        books.forget(conversation)
        parked = self.parking.park(tokens, states, size, conversation.files)
        books.parked(parked)
        log.info(
            "parked %d tokens and %d checkpoints (%s), reused_kv_bytes=%d",
            parked.lengths[0], len(states) - 1, bytes_text(size), kv,
        )  # fmt: skip
        self.parking.fit()
