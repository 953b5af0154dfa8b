"""From a conversation to the pieces of a reply, for every API alike: this file knows none of them.

Messages -> the model's chat template -> tokens -> the engine -> tokens -> text, thinking and answer apart.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from strata.engine.protocol import CONTEXT_RESERVE, Done, Gen, LogProb, Progress, Resume, Reused, Token
from strata.errors import RequestError
from strata.server.constrained import grammar_keys, strict_keys
from strata.server.failures import EngineUnavailable
from strata.server.flight import Flight
from strata.server.rendering import can_skip_thinking, chat_template, render
from strata.server.reply import Reply, Said
from strata.server.sampling import Sampling, ValueRangeError
from strata.server.scores import TokenScore
from strata.server.stages import Stages, staged
from strata.text import Tokenizer, starts_inside
from strata.text.calls import Tool, ToolChoice
from strata.text.grammar import Grammar
from strata.text.tool_calls import OPEN as CALL
from strata.text.tool_calls import opening

REPEAT_LIMIT = 256
"""A reply that says one token this often in a row has lost its thread and is ended."""
NEVER = -100.0
"""What is added to the logit of a token that a reply may not use."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What is asked for: a conversation (`messages`), or a `prompt` (text or token ids) to be continued as it is.

    `max_tokens` None, 0 or -1: what the context has room for. `thinking` None: as the model's template does by itself.
    `thinking_budget`: tokens of thinking after which the reply has to come to its answer (None: no limit; 0: none).
    `logprobs`: with each token of the answer its log-probability, and those of so many of the likeliest tokens.
    `tools`: what the model may call; `tool_choice` says whether and which it has to. `grammar`: what the answer has to
    match, token by token. `progress`: the client wants to hear how far its prompt is read; the events are the same,
    an API's form of the reply looks at it.
    """

    messages: Sequence[Mapping[str, Any]] | None = None
    prompt: str | Sequence[int] | None = None
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    thinking: bool | None = None
    effort: str | None = None
    thinking_budget: int | None = None
    logprobs: int | None = None
    tools: Sequence[Tool] = ()
    tool_choice: ToolChoice = ToolChoice()
    grammar: Grammar | None = None
    progress: bool = False
    template_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request ready for the engine."""

    ask: Ask
    stages: Stages
    starts_thinking: bool

    @property
    def prompt_tokens(self) -> int:
        return len(self.stages.prompt)


@dataclass(frozen=True, slots=True)
class Reading:
    """The prompt is being read: `reached` of `total` tokens, of which `cached` were there before, since `ms`."""

    reached: int
    total: int
    cached: int = 0
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class End:
    """The reply is complete. Times in milliseconds; `finish` is "stop", "length" or "tool_calls"."""

    finish: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    prompt_ms: float
    decode_ms: float
    drafts_offered: int = 0
    drafts_accepted: int = 0
    truncated: bool = False
    stop_string: str | None = None


Event = Reading | Said | End


class Engine(Protocol):
    """What generation needs of an engine: `strata.server.supervisor.Supervisor` is one."""

    async def context(self) -> int:
        """The context length in tokens, when the engine is ready."""
        ...

    @property
    def info(self) -> Mapping[str, int | str]:
        """What the engine can do, while it is ready."""
        ...

    def request(self, command: Gen, *, ahead: bool = False) -> AbstractAsyncContextManager[Flight]:
        """One request in its turn (`ahead`: before all that wait); leaving the context early ends it."""
        ...


class Generator:
    """One model's generations: its engine, tokenizer and chat template together."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer, *, name: str, defaults: Sampling | None = None) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.name = name
        self.defaults = defaults or Sampling()
        self.template = chat_template(tokenizer)

    async def prepare(self, ask: Ask) -> Prepared:
        """Render, tokenize and fit to the context. Raises RequestError, or EngineUnavailable while there is none."""
        context = await self.engine.context()
        return await asyncio.to_thread(self._prepare, ask, context)

    async def count(self, ask: Ask) -> int:
        """Tokens of the prompt that `prepare` would make, whether it fits the context or not; no engine is needed."""
        return len((await asyncio.to_thread(self._tokens, ask))[0])

    def prompt_text(self, ask: Ask) -> str:
        """A raw prompt as text. Raises RequestError for a number that is no token."""
        prompt = ask.prompt or ""
        return prompt if isinstance(prompt, str) else self.tokenizer.decode(self._raw_prompt(prompt))

    @property
    def can_skip_thinking(self) -> bool:
        """Whether the template can be told not to think (also when it knows no thinking)."""
        return self.template is None or can_skip_thinking(self.template)

    async def events(self, prepared: Prepared) -> AsyncGenerator[Event, None]:
        """The reply, piece by piece; the last event is End. Closing the iterator early stops the engine's work.

        Raises EngineRefused, EngineDied, EngineStalled or EngineUnavailable.
        """
        ask, stages = prepared.ask, prepared.stages
        calling = ask.tools if ask.tool_choice.mode != "none" else ()
        one_call = ask.tool_choice.mode == "named" or not ask.tool_choice.parallel
        reply = Reply(
            self.tokenizer, ask.stop, split=ask.messages is not None, thinking=prepared.starts_thinking, tools=calling,
            one_call=one_call,
        )  # fmt: skip
        for number in stages.begun:
            for said in reply.push(number):
                yield said
        written = _Written(prepared.prompt_tokens)
        command: Gen | None = stages.first
        while command is not None:
            async with contextlib.aclosing(self._stage(command, reply, written, ask.logprobs is not None)) as events:
                async for event in events:
                    yield event
            done, command = written.stages[-1], None
            if len(written.stages) == 1 and not reply.ended and (more := stages.next(reply, done, self.tokenizer)):
                inserted, command = more
                for number in inserted:
                    for said in reply.push(number):
                        yield said
        for said in reply.finish(natural=done.finish == "stop" and not written.stopped):
            yield said
        yield written.end(reply)

    async def _stage(
        self, command: Gen, reply: Reply, written: "_Written", scored: bool
    ) -> AsyncGenerator[Reading | Said, None]:
        """The reply's next tokens, as one request to the engine; its end is added to `written`."""
        first = not written.stages
        score: LogProb | None = None
        async with (
            self.engine.request(command, ahead=not first) as flight,
            contextlib.aclosing(flight.reports()) as reports,
        ):
            async for report in reports:
                match report:
                    case Progress() if first:
                        yield Reading(report.reached, report.prompt, written.cached, report.ms)
                    case Resume() | Reused() if first:
                        written.cached = report.tokens
                    case LogProb():
                        score = report
                    case Token() if not (reply.ended or written.stopped):
                        if scored and score is None:
                            raise RequestError("logprobs: this engine does not tell log-probabilities; leave it out.")
                        known = TokenScore(report.id, score.logprob, score.top) if score is not None else None
                        for said in reply.push(report.id, known):
                            yield said
                        score = None
                        written.stopped = reply.repeats >= REPEAT_LIMIT
                        if reply.ended or written.stopped:
                            flight.stop()
                    case Done():
                        written.stages.append(report)

    def _prepare(self, ask: Ask, context: int) -> Prepared:
        calls = bool(ask.tools) and ask.tool_choice.mode != "none"
        if calls and ask.grammar is not None:
            raise RequestError("A reply may call tools or has a grammar: send no tools with it, or tool_choice none.")
        sampling = self._sampling(ask)
        ids, inside = self._tokens(ask)
        limit = _limit(ask, len(ids), context)
        begins = self._opening(ask)
        template = self.template.source if self.template is not None else ""
        strict = strict_keys(ask.tools, ask.tool_choice, template, begins, self.tokenizer)
        if (ask.grammar is not None or strict) and not self.engine.info.get("grammar"):
            raise RequestError("This engine enforces no grammar; ask without a schema, a grammar or strict tools.")

        def command(thinking: bool) -> Gen:
            constrained = strict or grammar_keys(ask.grammar, self.tokenizer, thinking=thinking)
            return Gen(limit, tuple(ids), logprobs=ask.logprobs, **sampling.keys(), **constrained)

        stages = staged(
            command(inside), command(False), self.tokenizer, inside=inside, budget=ask.thinking_budget,
            opening=begins,
        )  # fmt: skip
        return Prepared(ask, stages, inside)

    def _opening(self, ask: Ask) -> str:
        """What a reply begins with that has to call a tool."""
        if ask.tool_choice.mode not in ("required", "named") or self.template is None:
            return ""
        name = ask.tool_choice.name if ask.tool_choice.mode == "named" else None
        if name is None and len(ask.tools) == 1:
            name = ask.tools[0].name
        return opening(self.template.source, name)

    def _sampling(self, ask: Ask) -> Sampling:
        """The request's sampling. Tools that may not be called stay in the prompt, for it to be found in the cache."""
        ask.sampling.check(self.tokenizer.size)
        call = self.tokenizer.id_of(CALL)
        if not ask.tools or ask.tool_choice.mode != "none" or call is None:
            return ask.sampling
        return replace(ask.sampling, logit_bias={**ask.sampling.logit_bias, call: NEVER})

    def _tokens(self, ask: Ask) -> tuple[list[int], bool]:
        """The prompt's tokens, and whether it leaves the model inside its thinking."""
        if ask.messages is not None:
            if self.template is None:
                raise RequestError(f"The model {self.name} has no chat template, so it cannot answer messages.")
            prompt = render(self.template, self.tokenizer, ask, name=self.name)
            ids = self.tokenizer.encode(prompt, parse_special=True, add_special=True)
            inside = starts_inside(prompt)
        else:
            ids = self._raw_prompt(ask.prompt or "")
            inside = False
        if not ids:
            raise RequestError("The prompt is empty.")
        return ids, inside

    def _raw_prompt(self, prompt: str | Sequence[int]) -> list[int]:
        if isinstance(prompt, str):
            return self.tokenizer.encode(prompt, parse_special=True, add_special=True)
        wrong = next((number for number in prompt if not 0 <= number < self.tokenizer.size), None)
        if wrong is not None:
            raise RequestError(f"prompt: {wrong} is no token of this model (0 to {self.tokenizer.size - 1}).")
        return list(prompt)


def _limit(ask: Ask, prompt: int, context: int) -> int:
    """The most tokens of a reply to a prompt of so many. Raises ContextError or ValueRangeError."""
    room = context - prompt - CONTEXT_RESERVE
    if room < 1:
        most = context - CONTEXT_RESERVE - 1
        raise ContextError(
            f"The prompt has {prompt} tokens, but the context of {context} tokens has room for at most {most}; "
            "shorten the conversation or start the server with a larger --context.",
            prompt,
            most,
        )
    wanted = room if ask.max_tokens in (None, 0, -1) else ask.max_tokens
    if wanted is None or wanted < 1:
        raise ValueRangeError("max_tokens", f"max_tokens must be at least 1 (or -1 for no limit), not {wanted}.")
    return min(wanted, room)


class ContextError(RequestError):
    """The prompt of `tokens` does not fit in the context, which has room for `most`."""

    def __init__(self, message: str, tokens: int, most: int) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.most = most


@dataclass(slots=True)
class _Written:
    """What the engine said of a reply's stages, beside its tokens."""

    prompt_tokens: int
    cached: int = 0
    stopped: bool = False
    stages: list[Done] = field(default_factory=list)

    def end(self, reply: Reply) -> End:
        """The end of the reply. Raises EngineUnavailable when the engine was stopped in the middle of it."""
        last = self.stages[-1]
        if last.finish == "cancel" and not (reply.ended or self.stopped):
            raise EngineUnavailable("The reply was cut off: the engine is shutting down.")
        whole = reply.ended or (last.finish == "stop" and not self.stopped)
        called = whole and reply.called and reply.stop_string is None
        return End(
            finish="tool_calls" if called else "stop" if whole else "length",
            prompt_tokens=self.prompt_tokens,
            cached_tokens=min(self.stages[0].reused or self.cached, self.prompt_tokens),
            completion_tokens=len(reply.ids),
            reasoning_tokens=reply.reasoning_tokens,
            prompt_ms=sum(done.prompt_ms for done in self.stages),
            decode_ms=sum(done.decode_ms for done in self.stages),
            drafts_offered=sum(done.drafts_offered for done in self.stages),
            drafts_accepted=sum(done.drafts_accepted for done in self.stages),
            truncated=last.finish == "pool",
            stop_string=reply.stop_string,
        )
