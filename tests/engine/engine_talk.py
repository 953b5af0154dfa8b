"""Talk to an engine within the test's process: lines in, lines out, and a clock that only windows move."""

from collections.abc import Sequence
from typing import Any

from engine_fakes import FakeModel, FakeState

from strata.engine.channel import Inbox
from strata.engine.loop import Engine, Limits
from strata.engine.protocol import Done, Err, Report, Resume, Token
from strata.engine.scheduler import Policy
from strata.memory import Marking, Memory, MemoryLimits, Origin, ParkingLimits, Sizes

WINDOW_S = 0.25


class Talk:
    """`at_window[n]` are lines that arrive while the n-th window (from 1) is computed."""

    def __init__(
        self,
        context: int = 256,
        chunk: int | None = 8,
        checkpoints: int = 6,
        *,
        pool: int = 1 << 20,
        drafts: int = 0,
        lookup: int = 0,
        parking: ParkingLimits | None = None,
        marking: Marking | None = None,
        **limits: Any,
    ) -> None:
        self.model = FakeModel(context, self._window)
        self.at_window: dict[int, list[str]] = {}
        self.reports: list[Report] = []
        self.now = 0.0
        self.count = 0
        self.memory: Memory[FakeState] = Memory(
            MemoryLimits(pool, checkpoints, parking=parking or ParkingLimits()), Sizes(1000, 100),
            Origin("fake", "bf16", "fake"), self.model.new_state,
        )  # fmt: skip
        policy = Policy(mtp_depth=drafts, lookup_depth=lookup, chunk=chunk)
        settings: dict[str, Any] = {"eos_ids": self.model.eos_ids, "checkpoints": checkpoints, "policy": policy}
        settings |= limits
        marking = marking or Marking(self.model.turn_id, 0, 0)
        self.engine = Engine(
            self.model, self.memory, Limits(context, marking=marking, **settings), self.reports.append,
            clock=lambda: self.now,
        )  # fmt: skip
        self.inbox = Inbox()

    def _window(self, rows: int) -> None:
        self.now += WINDOW_S
        self.count += 1
        for line in self.at_window.get(self.count, []):
            self.inbox.put(line)

    def say(self, *lines: str) -> list[str]:
        """Send lines, serve until nothing waits, and return the answers."""
        self.reports.clear()
        self.count = 0
        for line in lines:
            self.inbox.put(line)
        self.inbox.put("QUIT")
        self.engine.run(self.inbox)
        self.memory.check()
        return [report.format() for report in self.reports]

    def ask(self, prompt: Sequence[int], max_new: int = 8, keys: str = "") -> list[int]:
        """The tokens of one request that must not fail."""
        self.say(f"GEN {max_new} {keys} {','.join(map(str, prompt))}")
        assert not [r for r in self.reports if isinstance(r, Err)]
        return [r.id for r in self.reports if isinstance(r, Token)]

    @property
    def resumed(self) -> int:
        return next((r.tokens for r in self.reports if isinstance(r, Resume)), 0)

    @property
    def done(self) -> Done:
        assert isinstance(self.reports[-1], Done)
        return self.reports[-1]


def gen(prompt: Sequence[int], max_new: int = 8, keys: str = "") -> str:
    return f"GEN {max_new} {keys} {','.join(map(str, prompt))}"


def bgen(slot: int, prompt: Sequence[int], max_new: int = 8, keys: str = "") -> str:
    return f"BGEN {slot} {max_new} {keys} {','.join(map(str, prompt))}"
