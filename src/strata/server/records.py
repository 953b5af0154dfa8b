"""What is kept of a request: when it came, how it went on and ended, in numbers and without a word of its text."""

import time
import uuid
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from strata.engine.protocol import Done, Gen, Progress, Report, Resume, Reused, Token
from strata.server.rates import Rate
from strata.text import Tokenizer

CURRENT: "ContextVar[Trace | None]" = ContextVar("trace", default=None)
"""The HTTP request that is being answered: generations that begin belong to it."""
_APIS = {
    "/v1/chat/completions": "chat_completions", "/v1/completions": "completions",
    "/v1/responses": "responses", "/v1/messages": "messages",
}  # fmt: skip
_MARK_REACH = 16  # tokens from the end of a prompt in which an opened <think> is looked for


class Phase(StrEnum):
    """What is being done for a generation."""

    WAITING = "waiting"
    READING = "reading the prompt"
    THINKING = "thinking"
    ANSWERING = "answering"
    CALLING = "writing a tool call"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Marks:
    """The ids of the tokens that begin and end a part of a reply; a model without such tokens has fewer phases."""

    phases: dict[int, Phase] = field(default_factory=dict)

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "Marks":
        """Those of a model's vocabulary."""
        words = {"<think>": Phase.THINKING, "</think>": Phase.ANSWERING,
                 "<tool_call>": Phase.CALLING, "</tool_call>": Phase.ANSWERING}  # fmt: skip
        ids = {tokenizer.id_of(word): phase for word, phase in words.items()}
        return cls({number: phase for number, phase in ids.items() if number is not None})

    def opened_by(self, ids: tuple[int, ...]) -> Phase:
        """The phase in which a reply to this prompt begins."""
        last = next((self.phases[number] for number in reversed(ids[-_MARK_REACH:]) if number in self.phases), None)
        return Phase.THINKING if last is Phase.THINKING else Phase.ANSWERING


class Trace:
    """One HTTP request."""

    def __init__(self, method: str, path: str, request_id: str | None = None) -> None:
        self.id = request_id or f"req_{uuid.uuid4().hex[:20]}"
        self.method = method
        self.path = path
        self.api = _APIS.get(path, "")
        self.began = time.monotonic()
        self.time = time.time()
        self.ended: float | None = None
        self.status = 0
        self.generations: list[Generation] = []

    @property
    def seconds(self) -> float:
        """How long it took, or has taken so far."""
        return (self.ended if self.ended is not None else time.monotonic()) - self.began


class Generation:
    """One prompt and its reply, from the moment it asks for a place at the engine. Times are of `time.monotonic`."""

    def __init__(self, command: Gen, marks: Marks, trace: Trace | None, now: float) -> None:
        self.trace = trace
        self.marks = marks
        self.slot = -1
        self.phase = Phase.WAITING
        self.prompt_tokens = len(command.ids)
        self.max_tokens = command.max_new
        self.arrived = now
        self.began: float | None = None
        self.first: float | None = None
        self.last = now
        self.ended: float | None = None
        self.reached = 0
        self.reused = 0
        self.generated = 0
        self.finish: str | None = None
        self.error: str | None = None
        self.done: Done | None = None
        self.rate = Rate(now)
        self._opening = marks.opened_by(command.ids)

    @property
    def asked(self) -> float:
        """When its client asked for it."""
        return self.trace.began if self.trace is not None else self.arrived

    def begin(self, now: float) -> None:
        """The engine has begun with it."""
        if self.began is None:
            self.began = now
            self.phase = Phase.READING

    def take(self, report: Report, now: float) -> None:
        """A line of the engine about it."""
        if isinstance(report, Token):
            self._token(report.id, now)
        elif isinstance(report, Progress):
            self.begin(now)
            self.reached = report.reached
        elif isinstance(report, Resume | Reused):
            self.begin(now)
            self.reused = self.reached = report.tokens
        elif isinstance(report, Done):
            self.done = report
            self.reused = report.reused or self.reused

    def _token(self, number: int, now: float) -> None:
        if self.first is None:
            self.begin(now)
            self.first, self.rate = now, Rate(now)
            self.reached = self.prompt_tokens
            self.phase = self._opening
        self.generated += 1
        self.rate.add(now)
        self.last = now
        if (phase := self.marks.phases.get(number)) is not None:
            self.phase = phase

    def tok_s_mean(self) -> float:
        """Tokens per second since the first one."""
        if self.done is not None and self.done.decode_ms > 0:
            return 1000 * self.done.generated / self.done.decode_ms
        span = self.last - self.first if self.first is not None else 0.0
        return (self.generated - 1) / span if span > 0 else 0.0

    def live(self, now: float) -> dict[str, Any]:
        """As /metrics shows it while it runs."""
        trace = self.trace
        return {
            "state": "decoding" if self.first is not None else "reading" if self.began is not None else "waiting",
            "phase": self.phase.value,
            "id": trace.id if trace is not None else None,
            "api": trace.api if trace is not None else "",
            "prompt_tokens": self.prompt_tokens,
            "prompt_read": self.reached,
            "reused": self.reused,
            "generated": self.generated,
            "max_tokens": self.max_tokens,
            "elapsed_s": round(now - self.asked, 3),
            "tok_s": round(self.rate.value(now), 2) if self.first is not None else 0.0,
            "tok_s_mean": round(self.tok_s_mean(), 2),
        }
