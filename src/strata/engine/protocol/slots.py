"""Reports of requests in slots (`--batch N`) and in lanes (after LANES). A `slot` is the number of the BGEN line.

BDONE has two forms, told apart by their length: of a slot with four or six values, of a lane with ten.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

from strata.engine.protocol.report import Report, enough, logprobs, logprobs_text, value
from strata.engine.protocol.words import whole


@dataclass(frozen=True, slots=True)
class SlotToken(Report):
    """`BT <slot> <id>`: the next token of a slot or lane."""

    slot: int
    id: int
    WORD: ClassVar[str] = "BT"
    LEAST: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class SlotLogProb(Report):
    """`BLP <slot> <logprob> [<id>:<logprob> ...]`: as LP, before the BT of the token."""

    slot: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    WORD: ClassVar[str] = "BLP"
    LEAST: ClassVar[int] = 2

    def format(self) -> str:
        return f"BLP {self.slot} {logprobs_text(self.logprob, self.top)}"

    @classmethod
    def parse(cls, rest: str) -> Self:
        words = rest.split()
        enough(words, cls.LEAST)
        return cls(value("slot", whole, words[0]), *logprobs(words[1:]))


@dataclass(frozen=True, slots=True)
class SlotDone(Report):
    """`BDONE <slot> <generated> <finish> <ms> [<accepted> <offered>]`: the slot is free.

    `generated` counts the admission's token too; the drafts stand only where MTP drafts are on.
    """

    slot: int
    generated: int
    finish: str
    ms: float
    drafts_accepted: int | None = None
    drafts_offered: int | None = None
    WORD: ClassVar[str] = "BDONE"
    LEAST: ClassVar[int] = 4

    @classmethod
    def parse(cls, rest: str) -> Self:
        words = rest.split()
        # Of the pair of drafts both stand or neither does.
        return super(SlotDone, cls).parse(" ".join(words[:4] if len(words) == 5 else words))


@dataclass(frozen=True, slots=True)
class LaneResume(Report):
    """`BRESUME <lane> <n>`: the request was admitted, and n of its prompt tokens come from a kept conversation."""

    slot: int
    tokens: int
    WORD: ClassVar[str] = "BRESUME"
    LEAST: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class LaneProgress(Report):
    """`BPP <lane> <reached> <prompt> <ms> <tok/s>`: as PP, of a lane."""

    slot: int
    reached: int
    prompt: int
    ms: float
    speed: float
    WORD: ClassVar[str] = "BPP"
    LEAST: ClassVar[int] = 5


@dataclass(frozen=True, slots=True)
class LaneDone(Report):
    """`BDONE <lane> ...` in lanes form: the end of a request, with all that DONE says of one. Times are ms."""

    slot: int
    generated: int
    finish: str
    decode_ms: float
    drafts_accepted: int
    drafts_offered: int
    prompt: int
    prompt_ms: float
    reused: int
    prompt_read: int
    WORD: ClassVar[str] = "BDONE"
    LEAST: ClassVar[int] = 10


@dataclass(frozen=True, slots=True)
class LaneErr(Report):
    """`BERR <lane> <reason>`: the request was refused or has failed, and the lane is free."""

    slot: int
    reason: str
    WORD: ClassVar[str] = "BERR"
    LEAST: ClassVar[int] = 1
