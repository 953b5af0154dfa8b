"""Random lives of conversations: the books agree after every step, and every state is that of its tokens."""

import random
import tempfile
from pathlib import Path

import pytest
from memory.memory_fakes import ORIGIN, SIZES, FakeState

from strata.memory import MAIN, NOWHERE, ConversationFileError, Memory, MemoryLimits, ParkingLimits, PoolFull, Why

BLOCK = 90
STEPS = 250


def spelled(blocks):
    """A prompt of blocks: each its own tokens, so that prompts part where blocks differ."""
    return [block * 1000 + at for block in blocks for at in range(BLOCK)]


class World:
    """A memory, its running requests, and a list of what it holds as long as nothing has to give way."""

    def __init__(self, limits):
        self.limits = limits
        self.memory = Memory(limits, SIZES, ORIGIN, FakeState, available=lambda: 2**40)
        self.lanes = []
        self.held = {}  # tokens: {number of the conversation: whether it ends there}, while nothing gives way
        self.checkpoints = set()  # tokens at which one was made
        self.unlimited = False
        self.told = self.line = None

    def step(self, rng):
        name = rng.choices(
            ["admit", "window", "checkpoint", "finish", "discard", "restart", "session"], [12, 30, 12, 8, 1, 1, 1]
        )[0]
        if name == "admit" and len(self.lanes) < 5:
            self.admit(prompt_of(rng), rng.choice([MAIN, 0, 1, NOWHERE]), rng.choice("kkkro"))
        elif name in ("restart", "session"):
            getattr(self, name)()
        elif name != "admit" and self.lanes:
            lane = rng.choice(self.lanes)
            amount = {"window": rng.randrange(1, 300), "checkpoint": rng.choice(list(Why))}
            getattr(self, name)(lane, amount.get(name, rng.random() < 0.2))
        self.memory.check()
        assert all(admission.state.sound() for admission, _ in self.lanes)
        told = (self.memory.changes, id(self.memory), len(self.lanes))
        if told == self.told:
            assert self.memory.pool_line(2) == self.line, "a change that is not counted"
        self.told, self.line = told, self.memory.pool_line(2)

    def admit(self, prompt, place, kind):
        numbers = self.memory.pool_line(2)
        if any(admission.place == place != NOWHERE for admission, _ in self.lanes):
            return
        try:
            admission = self.memory.admit(prompt, keep=kind != "o", place=place, replaces=kind == "r")
        except PoolFull:
            admission = None
        if admission is None:
            assert self.memory.pool_line(2) == numbers, "whoever is refused moved nobody"
            assert not self.unlimited
            return
        state = admission.state
        assert state.tokens == prompt[: state.length]
        assert admission.reused == state.length < len(prompt)
        self.lanes.append((admission, prompt))
        if self.unlimited:
            begins = [t for t in self.held if len(t) < len(prompt) and tuple(prompt[: len(t)]) == t]
            longest = max(begins, key=len, default=())
            assert admission.reused == len(longest)
            assert admission.shared >= admission.reused
            if list(self.held.get(longest, {}).values()) == [True]:
                assert admission.conversation.number in self.held.pop(longest), "an end goes on as its conversation"
                self.checkpoints.discard(longest)
            else:
                for tokens in self.checkpoints & set(self.held):
                    if longest[: len(tokens)] == tokens:
                        self.held[tokens][admission.conversation.number] = False

    def window(self, lane, rows):
        admission, prompt = lane
        left = prompt[admission.state.length :][:rows] or [7] * min(rows, 40)
        if not self.memory.grow(admission, len(left)):
            assert not self.unlimited
            self.finish(lane, False)
            return
        admission.state.feed(left)

    def checkpoint(self, lane, why):
        kept = self.memory.checkpoint(lane[0], why)
        if kept and self.unlimited:
            self.note(lane[0], end=False)

    def finish(self, lane, gave_way):
        self.memory.finish(lane[0], gave_way=gave_way)
        self.lanes.remove(lane)
        if self.unlimited and lane[0].state.length:
            self.note(lane[0], end=True)

    def note(self, admission, end):
        tokens = tuple(admission.state.tokens)
        self.held.setdefault(tokens, {})[admission.conversation.number] = end
        if not end:
            self.checkpoints.add(tokens)

    def discard(self, lane, _):
        self.memory.discard(lane[0])
        self.lanes.remove(lane)

    def restart(self):
        while self.lanes:
            self.finish(self.lanes[0], False)
        self.memory.check()
        self.memory.close()
        self.memory = Memory(self.limits, SIZES, ORIGIN, FakeState, available=lambda: 2**40)

    def session(self):
        if any(admission.place == MAIN for admission, _ in self.lanes):
            return
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "session"
            try:
                tokens, _ = self.memory.save(path)
                self.memory.check()
                assert self.memory.restore(path)[0] == tokens
            except (PoolFull, ConversationFileError):
                assert self.limits.pool_tokens < 16384 or not path.exists()

    def end(self):
        while self.lanes:
            self.finish(self.lanes[0], False)
        self.memory.check()
        self.memory.close()


def prompt_of(rng):
    """Mostly beginnings that many prompts have."""
    blocks = [0] * rng.randrange(4) + [rng.randrange(3) for _ in range(rng.randrange(1, 7))]
    return spelled(blocks)[: rng.choice([None, None, -7, -50])]


@pytest.mark.parametrize("seed", range(40))
def test_any_life_within_any_limits(seed, tmp_path):
    rng = random.Random(seed)
    parking = ParkingLimits(
        ram_bytes=rng.choice([0, 9_000, 10**6]),
        slots=rng.randrange(1, 4),
        disk_bytes=rng.choice([9_000, 10**6]),
        min_free_bytes=rng.choice([0, 0, 2**50]),
        directory=rng.choice([None, tmp_path / "parked"]),
    )
    limits = MemoryLimits(
        pool_tokens=rng.choice([1024, 2048, 4096, 16384]),
        checkpoints=rng.randrange(4),
        state_bytes=rng.choice([500, 900, 10**6]),
        conversations=rng.randrange(1, 6),
        parking=parking,
    )
    world = World(limits)
    for _ in range(STEPS):
        world.step(rng)
    world.end()
    if parking.directory is not None:
        assert sum(path.stat().st_size for path in parking.directory.iterdir()) <= parking.disk_bytes


UNLIMITED = MemoryLimits(10**6, checkpoints=1000, state_bytes=10**9, conversations=1000)


@pytest.mark.parametrize("seed", range(20))
def test_with_room_for_all_the_longest_kept_beginning_is_found(seed):
    """Against a table of every sequence ever kept, less the ends that went on."""
    rng = random.Random(seed)
    world = World(UNLIMITED)
    world.unlimited = True
    for _ in range(25):
        world.admit(prompt_of(rng), NOWHERE, "k")
        lane = world.lanes[0]
        for _ in range(rng.randrange(5)):
            world.window(lane, rng.randrange(1, 250))
            world.checkpoint(lane, Why.TURN)
        world.finish(lane, False)
        world.memory.check()
