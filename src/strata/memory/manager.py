"""The one door to conversations' memory. The engine's loop calls it so:

1. `admit(prompt)` gives the state to start from (PoolFull: refused, retryable) with the chunks of the prompt reserved.
2. `grow(admission, rows)` before every window; False ends the request with finish "pool".
3. `checkpoint(admission, why)` where a window ended at one of `marks.marks`.
4. `finish(admission)` keeps the conversation, or `discard(admission)` after an error does not.

Between them it decides what gives way (`policy`, `tree`), parks it (`parking`), and can say what the pool holds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

import numpy as np

from strata import logs
from strata.machine import available_memory
from strata.memory import files
from strata.memory.books import Books
from strata.memory.conversations import MAIN, NOWHERE, Admission, Conversation, SpotNode, has_live, live_of
from strata.memory.files import ConversationFileError, Origin, S
from strata.memory.keeper import Keeper, MemoryLimits
from strata.memory.marks import Why
from strata.memory.parking import Parking
from strata.memory.policy import Asking, PoolFull, refusal
from strata.memory.pool import CHUNK, Pool, chunks
from strata.memory.sizes import Sizes
from strata.memory.tokens import Tokens, packed

RESERVE = 8
"""Positions reserved with a prompt beyond its own."""

log = logs.get("memory")


@dataclass(frozen=True, slots=True)
class PoolNumbers:
    """Tokens of the pool: all, free, and held by the conversations of the control lines and of each slot (POOL)."""

    cells: int
    free: int
    main: int
    slots: tuple[int, ...]


class Memory(Generic[S]):
    """The conversations of one engine. `new` makes an empty state.

    Raises UsageError for limits that cannot be kept (a pool below one chunk, a spill directory that cannot be used).
    """

    def __init__(
        self,
        limits: MemoryLimits,
        sizes: Sizes,
        origin: Origin,
        new: Callable[[], S],
        *,
        available: Callable[[], int | None] = available_memory,
    ) -> None:
        self._origin = origin
        self._new = new
        self._active: list[Admission[S]] = []
        self._pool = Pool(limits.pool_tokens)
        self._books: Books[S] = Books(self._pool, sizes)
        self._parking = Parking(limits.parking, origin, new, self._books.lost, available=available)
        self._keeper = Keeper(limits, self._books, self._parking)
        for parked in self._parking.find():
            self._books.parked(parked)

    def admit(
        self, prompt: Sequence[int] | Tokens, *, keep: bool = True, place: int = NOWHERE, replaces: bool = False
    ) -> Admission[S]:
        """The deepest kept state that the prompt continues (or an empty one), with chunks for the whole prompt.

        An int64 array for a prompt saves the time to make one (a millisecond for 100,000 tokens).
        `keep=False`: a one-shot request (ckpt=0): it gets a copy, nothing is kept of it, no state gives way to one of
        its own. `place`: MAIN, a slot, or NOWHERE; with `replaces` the conversation that stood there is not kept in the
        pool. Raises PoolFull, after which everything is as it was.
        """
        self._parking.collect()
        prompt = packed(prompt)
        request = _Request(prompt, keep, place, self._keeper.idle_at(place) if replaces and keep else None)
        shared = self._books.tree.common(prompt)
        while True:
            node = self._books.tree.deepest(request.prompt)
            try:
                if node is None:
                    admission = self._start(request)
                elif has_live(node):
                    admission = self._resume(request, node)
                else:
                    admission = self._return(request, node)
            except ConversationFileError:
                continue  # that conversation is gone from the tree
            admission.shared = shared
            self._active.append(admission)
            self._keeper.fit()
            return admission

    def grow(self, admission: Admission[S], rows: int) -> bool:
        """Chunks for the next window's `rows` (drafts included); False: none to be had, the lane ends with "pool"."""
        start = admission.state.length
        if not self._keeper.make_room(Asking.GROWTH, self._pool.missing(admission.holder, start, start + rows)):
            return False
        self._pool.reserve(admission.holder, start, start + rows)
        return True

    def checkpoint(self, admission: Admission[S], why: Why) -> bool:
        """Keep the admission's state as it is now; whether it is kept."""
        state, conversation, keeper = admission.state, admission.conversation, self._keeper
        if not state.length or not keeper.limits.checkpoints or (conversation is None and why is not Why.ROOT):
            return False
        tokens = admission.tokens
        node = self._books.tree.at(tokens)
        if not has_live(node):
            if conversation is None and not keeper.room():
                return False
            partial = state.length % CHUNK > 0
            if not keeper.make_room(Asking.CHECKPOINT, int(partial)):
                return False
            holder = self._pool.share(admission.holder, state.length)
            if partial:
                self._pool.reserve(admission.holder, state.length, state.length + 1)
            node = self._books.keep(tokens, state.copy(), holder, why, self._books.tree.at(tokens))
            admission.made.append((node, live_of(node)))
        else:
            self._books.tree.touch(node)
            if live_of(node).why is Why.END:
                live_of(node).why = why
        if conversation is not None:
            self._books.own(conversation, node)
        if why in (Why.ROOT, Why.PIN):
            keeper.stand(node, why)
        if conversation is not None:
            keeper.limit_checkpoints(conversation, node)
        keeper.fit(node)
        return True

    def finish(self, admission: Admission[S], *, gave_way: bool = False) -> None:
        """The request is over: its state is its conversation's end. `gave_way`: a prompt read that will go on later."""
        self._active.remove(admission)
        state, conversation = admission.state, admission.conversation
        if conversation is None or not state.length:
            self._leave(admission)
            return
        self._pool.trim(admission.holder, state.length)
        conversation.active, conversation.gave_way = False, gave_way
        conversation.used = self._books.now()
        tokens = admission.tokens
        node = self._books.tree.at(tokens)
        if has_live(node):
            self._pool.release(admission.holder)
            self._books.tree.touch(node)
        else:
            node = self._books.keep(tokens, state, admission.holder, Why.END, node)
        self._books.own(conversation, node, end=True)
        self._keeper.fit(node)

    def discard(self, admission: Admission[S]) -> None:
        """The request failed: its state, and the checkpoints it made, may be spoilt and are not kept."""
        self._active.remove(admission)
        for node, live in admission.made:
            if node.value is not None and node.value.live is live:
                self._books.evict(node)
        self._leave(admission)

    def move(self, admission: Admission[S], place: int) -> None:
        """The request, and its conversation, stand at another place; the idle one there gives way."""
        replaced = self._keeper.idle_at(place)
        if replaced is not None and place != admission.place:
            self._keeper.give_way(replaced)
        admission.place = place
        if admission.conversation is not None:
            admission.conversation.place = place

    def stands(self, place: int) -> bool:
        """Whether an idle conversation stands at a place."""
        return self._keeper.idle_at(place) is not None

    @property
    def changes(self) -> int:
        """Counts up where `pool_line` may change and no request comes or goes: what goes then makes room for more."""
        return self._pool.changes + self._books.changes

    def save(self, path: Path) -> tuple[int, int]:
        """Write the conversation of the control lines to a session file: tokens, bytes. ConversationFileError."""
        conversation = self._keeper.idle_at(MAIN)
        if conversation is None or conversation.end is None:
            raise ConversationFileError("invalid", "There is no conversation to save.")
        states = [live.state for live in reversed(list(conversation.lives()))]
        for state in states:
            state.settle()
        return states[0].length, files.write(path, states, self._origin)

    def restore(self, path: Path) -> tuple[int, int]:
        """Read a session file as the conversation of the control lines: tokens, bytes.

        Raises ConversationFileError, and PoolFull before its arrays are read where the lanes hold the pool.
        """
        saved = files.look(path, self._origin)
        replaced = self._keeper.idle_at(MAIN)
        self._keeper.make_room(Asking.RESTORE, chunks(saved.lengths[0]) + _partial(saved.lengths[1:]), replaced)
        states = files.read(path, self._origin, self._new)
        if replaced is not None:
            self._keeper.give_way(replaced)
        self._keeper.revive(saved.tokens, states, MAIN)
        self._keeper.fit()
        return saved.lengths[0], saved.size

    def pool_line(self, slots: int) -> PoolNumbers:
        """What POOL says."""
        held = [0] * (slots + 1)
        for at in range(slots + 1):
            taken: set[int] = set()
            for one in self._books.conversations.values():
                if one.place == at - 1:
                    for live in one.lives():
                        taken |= set(self._pool.tables[live.holder])
            for admission in self._active:
                if admission.place == at - 1:
                    taken |= set(self._pool.tables[admission.holder])
            held[at] = len(taken) * CHUNK
        return PoolNumbers(self._pool.tokens, self._pool.free * CHUNK, held[0], tuple(held[1:]))

    def close(self) -> None:
        """The engine ends: idle and parked conversations go to the spill directory, if there is one."""
        if self._keeper.limits.parking.directory is not None:
            for conversation in self._books.idle():
                self._keeper.give_way(conversation)
        self._parking.close()

    def check(self) -> None:
        """AssertionError where the books do not agree with one another (chunks, states, owners, parked ones)."""
        books = self._books
        books.pool.check()
        books.tree.check()
        holders = {admission.holder for admission in self._active}
        parked = {id(one) for one in self._parking}
        for node in books.tree:
            spot = node.value
            assert spot is not None
            assert spot.live is not None or spot.parked, "a node holds nothing"
            assert all(id(one) in parked and one.lengths[at] == node.length for one, at in spot.parked.items())
            if spot.live is not None:
                assert spot.live.state.length == node.length, "a kept state moved on"
                assert np.array_equal(packed(spot.live.state.tokens), node.tokens()), "a state stands at other tokens"
                assert spot.live.holder not in holders, "two states have one holder"
                assert books.pool.held(spot.live.holder) == chunks(node.length), "a kept state holds other chunks"
                holders.add(spot.live.holder)
                owners = {c.number for c in books.conversations.values() if node in c.nodes}
                assert owners == spot.live.owners != set(), "owners do not match"
        assert holders == set(books.pool.tables), "chunks are held for nobody"
        active = {a.conversation.number for a in self._active if a.conversation is not None}
        for one in books.conversations.values():
            assert one.active == (one.number in active), "a conversation is active without a request"
            assert one.active or one.nodes, "a conversation is empty"

    def _start(self, request: "_Request[S]") -> Admission[S]:
        self._keeper.make_room(Asking.ADMISSION, chunks(request.end), request.replaced)
        conversation = self._books.open(request.place) if request.keep else None
        return self._seat(request, self._new(), self._pool.new(), conversation)

    def _resume(self, request: "_Request[S]", node: SpotNode[S]) -> Admission[S]:
        """From a live state: an end that one idle conversation alone owns is taken, any other state copied."""
        live = live_of(node)
        owners = [self._books.conversations[number] for number in live.owners]
        self._books.tree.touch(node)
        for one in owners:
            one.used = self._books.now()
        if request.keep and len(owners) == 1 and owners[0].end is node:
            return self._take(request, owners[0], live.holder)
        return self._copy(request, node)

    def _take(self, request: "_Request[S]", owner: Conversation[S], holder: int) -> Admission[S]:
        assert owner.end is not None
        owner.active = True  # whoever is asked to give way, it is not the one that goes on
        try:
            need = self._pool.missing(holder, owner.end.length, request.end)
            self._keeper.make_room(Asking.ADMISSION, need, None if request.replaced is owner else request.replaced)
        except PoolFull:
            owner.active = False
            raise
        owner.place, owner.gave_way = request.place, False
        return self._seat(request, self._books.take(owner).state, holder, owner)

    def _copy(self, request: "_Request[S]", node: SpotNode[S]) -> Admission[S]:
        """A twin of the state, and the checkpoints on its path owned too, as far as the pool has room for them."""
        state = live_of(node).state
        holder = self._pool.share(live_of(node).holder, node.length)
        need = self._pool.missing(holder, node.length, request.end)
        conversation = None
        if request.keep:
            conversation = self._books.open(request.place)
            conversation.active = True
            for one in self._books.tree.path(request.prompt[: node.length]):
                if has_live(one) and live_of(one).why is not Why.END:
                    self._books.own(conversation, one)
            if self._keeper.would_refuse(need, request.replaced):
                for one in conversation.nodes:
                    self._books.disown(conversation, one)
        try:
            self._keeper.make_room(Asking.ADMISSION, need, request.replaced)
        except PoolFull:
            self._pool.release(holder)
            if conversation is not None:
                self._books.forget(conversation)
            raise
        return self._seat(request, state.copy(), holder, conversation)

    def _return(self, request: "_Request[S]", node: SpotNode[S]) -> Admission[S]:
        """From a parked state: the end of a conversation brings all of it back, a checkpoint is copied."""
        assert node.value is not None
        parked, index = next(reversed(node.value.parked.items()))
        need, chain = chunks(request.end), _partial(parked.lengths[1:])
        whole = request.keep and index == 0
        with_chain = whole and not self._keeper.would_refuse(need + chain, request.replaced)
        if self._keeper.would_refuse(need, request.replaced):
            raise PoolFull(refusal(self._pool.tokens))
        states = self._parking.states(parked)  # a damaged file is found before anybody gives way
        self._keeper.make_room(Asking.ADMISSION, need + chain if with_chain else need, request.replaced)
        self._parking.touch(parked)
        log.info("restored %d tokens of a parked conversation of %d", states[index].length, parked.lengths[0])
        if not whole:
            holder = self._pool.new()
            self._pool.reserve(holder, 0, states[index].length)
            conversation = self._books.open(request.place) if request.keep else None
            return self._seat(request, states[index], holder, conversation)
        owner = self._keeper.revive(parked.tokens, states if with_chain else states[:1], request.place)
        owner.files = [*parked.older, *([] if parked.path is None else [parked])]
        self._parking.leave_ram(parked)
        live = self._books.take(owner)
        return self._seat(request, live.state, live.holder, owner)

    def _seat(
        self, request: "_Request[S]", state: S, holder: int, conversation: Conversation[S] | None
    ) -> Admission[S]:
        """Reserve the prompt (there is room), and let go of what the request replaces."""
        if conversation is not None:
            conversation.active = True
        self._pool.reserve(holder, state.length, request.end)
        if request.replaced is not None and request.replaced is not conversation:
            self._keeper.give_way(request.replaced)
        return Admission(state, state.length, holder, request.place, conversation, request.prompt)

    def _leave(self, admission: Admission[S]) -> None:
        """The admission's state goes; its conversation stays as far as it has other states."""
        self._pool.release(admission.holder)
        conversation = admission.conversation
        if conversation is not None:
            conversation.active = False
            conversation.used = self._books.now()
            if not conversation.nodes:
                self._books.forget(conversation)


@dataclass(frozen=True, slots=True)
class _Request(Generic[S]):
    """What is to be admitted; `replaced`: the idle conversation that stood at its place."""

    prompt: Tokens
    keep: bool
    place: int
    replaced: Conversation[S] | None

    @property
    def end(self) -> int:
        """Positions to reserve."""
        return len(self.prompt) + RESERVE


def _partial(lengths: Sequence[int]) -> int:
    """Chunks that checkpoints have of their own: those that end inside a chunk."""
    return sum(length % CHUNK > 0 for length in lengths)
