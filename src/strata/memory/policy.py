"""What happens when the KV pool is full: who gives way, who is refused, who ends. Pure: situation in, decision out.

The rules are those of Strata's shared pool (`--kv-pool-tokens`):
- Only idle conversations give way: lowest rank first, then the longest unused, then the lower place.
- Ranks: no conversation in it (0), a cached conversation (1), a prompt read that gave way to another (last, not never).
- Nobody is asked when all that can give way together would not cover the need.
- Then a new request (or a session file's restore) is refused, retryable; a decoding lane that cannot grow ends `pool`,
  which clients see as `length`, truncated.
Added here: pinned prefixes stand between cached conversations and reads that gave way; conversations share chunks, so
one that would give back nothing is not asked; and a checkpoint that finds no room is not made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

from strata.errors import RequestError


class Rank(IntEnum):
    """Who is asked first."""

    EMPTY = 0
    CACHED = 1
    PINNED = 2
    GAVE_WAY = 3


class Asking(Enum):
    """Who needs chunks."""

    ADMISSION = "admission"
    RESTORE = "restore"
    GROWTH = "growth"
    CHECKPOINT = "checkpoint"


@dataclass(frozen=True, slots=True)
class Idle:
    """What can give way: `name` (the caller's), rank, when it was last used, its place (lower first), its holders."""

    name: int
    rank: Rank
    used: int
    place: int
    holders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Situation:
    """A need of `need` chunks while `free` of `tokens / 256` are free.

    `tables`: the chunks of each holder; `references`: how many holders each chunk has, lanes included; `owners`: how
    many of the idle have a holder in common (absent: one).
    """

    asking: Asking
    need: int
    free: int
    tokens: int
    idle: Sequence[Idle]
    tables: Mapping[int, Sequence[int]]
    references: Sequence[int]
    owners: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class GiveWay:
    """An idle conversation gives its chunks back."""

    name: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request is refused; it may be sent again."""

    reason: str


@dataclass(frozen=True, slots=True)
class End:
    """The lane ends where it is."""

    finish: str = "pool"


@dataclass(frozen=True, slots=True)
class Skip:
    """The checkpoint is not made."""


Action = GiveWay | Refuse | End | Skip


class PoolFull(RequestError):
    """No room for a request: 503 with Retry-After, code `kv_pool_full`; its text starts with 'KV pool full'."""


def refusal(tokens: int) -> str:
    """The text after `ERR `; servers look at its first three words."""
    return (
        f"KV pool full: the decoding lanes hold all {tokens} cells of --kv-pool-tokens; try again when one finishes"
    )


def decide(situation: Situation) -> list[Action]:
    """What has to happen so that the need is met (nothing, or some give way), or the one action that says it is not."""
    missing = situation.need - situation.free
    if missing <= 0:
        return []
    order = sorted(situation.idle, key=lambda idle: (idle.rank, idle.used, idle.place))
    books = _Books(situation)
    asked: list[Idle] = []
    for idle in order:
        if books.freed >= missing:
            break
        books.release(idle)
        asked.append(idle)
    if books.freed >= missing:
        return [GiveWay(idle.name) for idle in asked if idle.rank is Rank.EMPTY or _helps(situation, asked, idle)]
    if situation.asking is Asking.GROWTH:
        return [End()]
    if situation.asking is Asking.CHECKPOINT:
        return [Skip()]
    return [Refuse(refusal(situation.tokens))]


class _Books:
    """Chunks that come back when some of the idle give way."""

    def __init__(self, situation: Situation) -> None:
        self._tables = situation.tables
        self._references = situation.references
        self._owners = situation.owners
        self._left: dict[int, int] = {}
        self._taken: dict[int, int] = {}
        self.freed = 0

    def release(self, idle: Idle) -> None:
        for holder in idle.holders:
            left = self._left.get(holder, self._owners.get(holder, 1)) - 1
            self._left[holder] = left
            if left:
                continue
            for chunk in self._tables[holder]:
                self._taken[chunk] = self._taken.get(chunk, 0) + 1
                self.freed += self._taken[chunk] == self._references[chunk]


def _helps(situation: Situation, asked: Sequence[Idle], one: Idle) -> bool:
    """Whether less would come back without `one`."""
    every, others = _Books(situation), _Books(situation)
    for idle in asked:
        every.release(idle)
        if idle is not one:
            others.release(idle)
    return others.freed < every.freed
