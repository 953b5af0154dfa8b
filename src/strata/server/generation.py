"""From a conversation to the pieces of a reply, for every API alike: this file knows none of them.

Messages -> the model's chat template -> tokens -> the engine -> tokens -> text, thinking and answer apart.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from strata.engine.protocol import CONTEXT_RESERVE, Done, Gen, LogProb, Progress, Resume, Reused, Token
from strata.errors import RequestError
from strata.server.constrained import grammar_keys
from strata.server.failures import EngineUnavailable
from strata.server.flight import Flight
from strata.server.reply import Reply
from strata.server.sampling import Sampling, ValueRangeError
from strata.server.scores import TokenScore
from strata.text import ChatTemplate, Piece, Tokenizer, starts_inside
from strata.text.calls import CallArguments, CallClosed, CallOpened, Tool, ToolChoice
from strata.text.grammar import Grammar
from strata.text.template import CHATML

REPEAT_LIMIT = 256
"""A reply that says one token this often in a row has lost its thread and is ended."""
_RESERVED = ("messages", "add_generation_prompt", "tools")
_NO_THINKING = ("none", "off", "minimal", "disabled")
_EFFORTS = {"low": "low", "medium": "medium", "high": "xhigh", "xhigh": "xhigh", "max": "xhigh"}


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
    command: Gen
    context: int
    starts_thinking: bool

    @property
    def prompt_tokens(self) -> int:
        return len(self.command.ids)


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


Event = Reading | Piece | CallOpened | CallArguments | CallClosed | End


class Engine(Protocol):
    """What generation needs of an engine: `strata.server.supervisor.Supervisor` is one."""

    async def context(self) -> int:
        """The context length in tokens, when the engine is ready."""
        ...

    def request(self, command: Gen) -> AbstractAsyncContextManager[Flight]:
        """One request in its turn; leaving the context early ends it."""
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

    @property
    def can_skip_thinking(self) -> bool:
        """Whether the template can be told not to think (also when it knows no thinking)."""
        source = self.template.source if self.template is not None else ""
        return "<think>" not in source or "enable_thinking" in source

    async def events(self, prepared: Prepared) -> AsyncGenerator[Event, None]:
        """The reply, piece by piece; the last event is End. Closing the iterator early stops the engine's work.

        Raises EngineRefused, EngineDied, EngineStalled or EngineUnavailable.
        """
        split = prepared.ask.messages is not None
        reply = Reply(self.tokenizer, prepared.ask.stop, split=split, thinking=prepared.starts_thinking)
        cached = 0
        score: LogProb | None = None
        async with (
            self.engine.request(prepared.command) as flight,
            contextlib.aclosing(flight.reports()) as reports,
        ):
            async for report in reports:
                match report:
                    case Progress():
                        yield Reading(report.reached, report.prompt, cached, report.ms)
                    case Resume() | Reused():
                        cached = report.tokens
                    case LogProb():
                        score = report
                    case Token() if not reply.ended:
                        if prepared.ask.logprobs is not None and score is None:
                            raise RequestError("logprobs: this engine does not tell log-probabilities; leave it out.")
                        known = TokenScore(report.id, score.logprob, score.top) if score is not None else None
                        for piece in reply.push(report.id, known):
                            yield piece
                        score = None
                        if reply.ended or reply.repeats >= REPEAT_LIMIT:
                            reply.ended = True
                            flight.stop()
                    case Done():
                        for piece in reply.finish():
                            yield piece
                        yield _end(report, reply, cached)

    def _prepare(self, ask: Ask, context: int) -> Prepared:
        ask.sampling.check(self.tokenizer.size)
        for name, wanted in (("tools", ask.tools), ("thinking_budget", ask.thinking_budget)):
            if wanted:
                raise RequestError(f"{name}: not implemented by this server yet; leave it out.")
        ids, inside = self._tokens(ask)
        room = context - len(ids) - CONTEXT_RESERVE
        if room < 1:
            raise ContextError(
                f"The prompt has {len(ids)} tokens, but the context of {context} tokens has room for at most "
                f"{context - CONTEXT_RESERVE - 1}; shorten the conversation or start the server with a larger "
                "--context.",
                len(ids),
                context - CONTEXT_RESERVE - 1,
            )
        wanted = room if ask.max_tokens in (None, 0, -1) else ask.max_tokens
        if wanted is None or wanted < 1:
            raise ValueRangeError("max_tokens", f"max_tokens must be at least 1 (or -1 for no limit), not {wanted}.")
        constrained = grammar_keys(ask.grammar, self.tokenizer, thinking=inside)
        command = Gen(min(wanted, room), tuple(ids), logprobs=ask.logprobs, **ask.sampling.keys(), **constrained)
        return Prepared(ask, command, context, inside)

    def _tokens(self, ask: Ask) -> tuple[list[int], bool]:
        """The prompt's tokens, and whether it leaves the model inside its thinking."""
        if ask.messages is not None:
            prompt = self._render(ask)
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

    def _render(self, ask: Ask) -> str:
        if self.template is None:
            raise RequestError(f"The model {self.name} has no chat template, so it cannot answer messages.")
        reserved = next((key for key in _RESERVED if key in ask.template_options), None)
        if reserved is not None:
            raise RequestError(f"chat_template_kwargs may not set {reserved!r}.")
        options = {**self._thinking_options(ask), **ask.template_options}
        messages = [
            {key: self.tokenizer.quote(value) if isinstance(value, str) and key != "role" else value
             for key, value in message.items()}
            for message in conversation(ask.messages or ())
        ]  # fmt: skip
        return self.template.render(messages, options=options)

    def _thinking_options(self, ask: Ask) -> dict[str, Any]:
        """Effort and the thinking switch as template options; a template with a mere switch gets on or off."""
        options: dict[str, Any] = {}
        thinking = ask.thinking
        if ask.effort is not None:
            if ask.effort in _NO_THINKING:
                thinking = False if thinking is None else thinking
            elif ask.effort in _EFFORTS:
                options["reasoning_effort"] = _EFFORTS[ask.effort]
                thinking = True if thinking is None else thinking
            else:
                known = ", ".join((*_NO_THINKING, *_EFFORTS))
                raise RequestError(f"reasoning effort {ask.effort!r} is unknown; choose one of {known}.")
        if thinking is not None:
            if not thinking and not self.can_skip_thinking:
                raise RequestError(f"Thinking cannot be switched off: {self.name}'s chat template has no such switch.")
            options["enable_thinking"] = thinking
        return options


class ContextError(RequestError):
    """The prompt of `tokens` does not fit in the context, which has room for `most`."""

    def __init__(self, message: str, tokens: int, most: int) -> None:
        super().__init__(message)
        self.tokens = tokens
        self.most = most


def chat_template(tokenizer: Tokenizer) -> ChatTemplate | None:
    """The model's own template; the plain ChatML one for a file without, if it has ChatML's tokens; else None."""
    vocab = tokenizer.vocabulary
    source = vocab.chat_template
    if source is None and all(tokenizer.id_of(mark) is not None for mark in ("<|im_start|>", "<|im_end|>")):
        source = CHATML
    if source is None:
        return None
    bos, eos = ("" if number is None else vocab.tokens[number] for number in (vocab.bos_id, vocab.eos_id))
    return ChatTemplate(source, bos_token=bos, eos_token=eos, name=vocab.source)


def conversation(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as templates expect them: one system message at most, first (a later one becomes the user's)."""
    result: list[dict[str, Any]] = []
    for message in messages:
        role = "system" if message["role"] == "developer" else message["role"]
        if role == "system" and result and (len(result) > 1 or result[0]["role"] != "system"):
            role = "user"
        if role == "system" and result:
            result[0]["content"] = f"{result[0]['content']}\n\n{message['content']}"
        else:
            result.append({**message, "role": role})
    return result


def _end(done: Done, reply: Reply, cached: int) -> End:
    if done.finish == "cancel" and not reply.ended:
        raise EngineUnavailable("The reply was cut off: the engine is shutting down.")
    by_text = reply.stop_string is not None
    repeated = reply.ended and not by_text
    return End(
        finish="stop" if by_text or (done.finish == "stop" and not repeated) else "length",
        prompt_tokens=done.prompt,
        cached_tokens=done.reused or cached,
        completion_tokens=reply.tokens,
        reasoning_tokens=reply.reasoning_tokens,
        prompt_ms=done.prompt_ms,
        decode_ms=done.decode_ms,
        drafts_offered=done.drafts_offered,
        drafts_accepted=done.drafts_accepted,
        truncated=done.finish == "pool",
        stop_string=reply.stop_string,
    )
