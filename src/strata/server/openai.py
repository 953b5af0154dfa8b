"""The OpenAI form of requests and errors (https://platform.openai.com/docs/api-reference/chat).

Fields that this server does not know are allowed: clients send many. Fields that it knows and does not implement are
refused by name, unless they ask for what happens anyway.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from strata.server.fields import SamplingFields, converted, json_object, top_logprobs
from strata.server.generation import Ask
from strata.server.openai_messages import to_messages
from strata.server.openai_tools import tools_of
from strata.server.problem import FieldError, Problem
from strata.server.sampling import Sampling
from strata.server.structured import grammar_of
from strata.text.grammar import Grammar

# Options that clients may send and that are not implemented, with the values that ask for nothing.
NEUTRAL: Mapping[str, Sequence[Any]] = {
    "ignore_eos": (False,), "min_tokens": (0,), "stop_token_ids": ([],), "typical_p": (1,), "mirostat": (0,),
    "dry_multiplier": (0,), "xtc_probability": (0,), "use_beam_search": (False,), "strata_mcp": (False,),
    "strata_checkpoint": (), "strata_prefix": (), "strata_tune": ({},), "experimental_speed_projection": (False,),
    "chat_template": (), "bad_words": ([],), "allowed_token_ids": ([],), "truncate_prompt_tokens": (-1,),
    "include_stop_str_in_output": (False,), "dynatemp_range": (0,), "top_n_sigma": (-1, 0), "prompt_logprobs": (),
}  # fmt: skip
_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "functions": ([],), "function_call": ("none", "auto"), "audio": (), "prediction": (),
    "modalities": (["text"],), "web_search_options": (), **NEUTRAL, "best_of": (1,),
    "continue_final_message": (False,), "add_generation_prompt": (True,),
}  # fmt: skip


_BUDGETS = ("reasoning_budget_tokens", "thinking_budget_tokens", "thinking_budget")
MOST_CHOICES = 128
_SEEDS = 2**64


class StreamOptions(msgspec.Struct):
    """`stream_options`."""

    include_usage: bool | None = None


class Reasoning(msgspec.Struct):
    """`reasoning`, as some clients spell effort and budget."""

    effort: str | None = None
    max_tokens: int | None = None


class OpenAIRequest(SamplingFields, kw_only=True):
    """What requests for chat and for completions have in common."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    repeat_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    return_progress: bool | None = None

    @property
    def include_usage(self) -> bool:
        """Whether the client wants the usage in a chunk of its own."""
        return bool(self.stream_options and self.stream_options.include_usage)


class ChatRequest(OpenAIRequest, kw_only=True):
    """The implemented fields of POST /v1/chat/completions, but for those that ask for a grammar."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_budget_tokens: int | None = None
    thinking_budget_tokens: int | None = None
    thinking_budget: int | None = None
    reasoning_effort: str | None = None
    reasoning: Reasoning | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


def parse_chat(body: bytes) -> tuple[ChatRequest, Grammar | None]:
    """A request from its JSON body, and the grammar that it asks for. Raises FieldError."""
    fields = json_object(body)
    refuse(fields, _NEUTRAL)
    request = converted(fields, ChatRequest, indices=False)
    grammar = grammar_of(fields)
    if not request.messages:
        raise FieldError("messages must hold at least one message.", "messages")
    return request, grammar


def refuse(fields: Mapping[str, Any], neutral: Mapping[str, Sequence[Any]]) -> None:
    """Raises FieldError for the first field that asks for what is not implemented: not one of its neutral values."""
    for name, values in neutral.items():
        value = fields.get(name)
        if value is not None and value not in values:
            raise FieldError(f"{name} is not implemented by this server; leave it out.", name, "unsupported_parameter")


def to_ask(request: ChatRequest, defaults: Sampling, grammar: Grammar | None = None) -> Ask:
    """The neutral form of a request; what it leaves open is taken from `defaults`. Raises FieldError."""
    options = dict(request.chat_template_kwargs or {})
    thinking = options.pop("enable_thinking", request.enable_thinking)
    effort = request.reasoning_effort or (request.reasoning.effort if request.reasoning else None)
    effort = options.pop("reasoning_effort", effort)
    if not (thinking is None or isinstance(thinking, bool)):
        raise FieldError("enable_thinking must be true or false.", "chat_template_kwargs")
    if not (effort is None or isinstance(effort, str)):
        raise FieldError("reasoning_effort must be a text.", "chat_template_kwargs")
    limit = request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens
    parallel = request.parallel_tool_calls is not False
    tools, choice = tools_of(request.tools or (), request.tool_choice, parallel=parallel)
    return Ask(
        messages=to_messages(request.messages),
        sampling=sampling_of(request, defaults),
        max_tokens=limit,
        stop=stops(request.stop),
        thinking=thinking,
        effort=effort,
        thinking_budget=_budget(request),
        logprobs=_logprobs(request),
        tools=tools,
        tool_choice=choice,
        grammar=grammar,
        progress=bool(request.return_progress),
        template_options=options,
    )


def choices(ask: Ask, count: int | None) -> list[Ask]:
    """The replies that `n` asks for: each is drawn with a seed of its own. Raises FieldError."""
    count = 1 if count is None else count
    if not 1 <= count <= MOST_CHOICES:
        raise FieldError(f"n must be from 1 to {MOST_CHOICES}, not {count}.", "n")
    seed = ask.sampling.seed
    if seed is None:
        return [ask] * count
    seeds = [seed + index for index in range(count)]
    if seed < _SEEDS:
        seeds = [one - _SEEDS if one >= _SEEDS else one for one in seeds]  # behind the last seed comes 0
    return [replace(ask, sampling=replace(ask.sampling, seed=one)) for one in seeds]


def stops(stop: str | list[str] | None) -> tuple[str, ...]:
    """The stop strings of a request. Raises FieldError."""
    found = [stop] if isinstance(stop, str) else stop or []
    if not all(found):
        raise FieldError("stop may not hold an empty text.", "stop")
    return tuple(found)


def _budget(request: ChatRequest) -> int | None:
    """The tokens of thinking; the first of the fields that say so counts, and -1 is no limit. Raises FieldError."""
    given = {name: getattr(request, name) for name in _BUDGETS}
    given["reasoning.max_tokens"] = request.reasoning.max_tokens if request.reasoning else None
    for name, value in given.items():
        if value is not None and value < -1:
            raise FieldError(f"{name} must be at least 0 (or -1 for no limit), not {value}.", name)
        if value is not None:
            return None if value == -1 else int(value)
    return None


def sampling_of(request: OpenAIRequest, defaults: Sampling) -> Sampling:
    """How tokens are drawn; what the request leaves open is taken from `defaults`. Raises FieldError."""
    given: dict[str, Any] = {}
    if request.repeat_penalty and request.repetition_penalty is None:
        given["repetition_penalty"] = request.repeat_penalty
    if request.logit_bias:
        given["logit_bias"] = {_token_id(key): value for key, value in request.logit_bias.items()}
    return replace(request.sampling(defaults), **given)


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 10):
        raise FieldError(f"logit_bias: {key!r} is not a token id.", "logit_bias")
    return int(key)


def _logprobs(request: ChatRequest) -> int | None:
    if request.logprobs:
        return top_logprobs(request.top_logprobs)
    if request.top_logprobs:
        raise FieldError("top_logprobs needs logprobs to be true.", "top_logprobs")
    return None


def error(problem: Problem) -> dict[str, Any]:
    """The body of an error."""
    detail: dict[str, Any] = {
        "message": problem.message, "type": problem.kind, "param": problem.param, "code": problem.code,
    }  # fmt: skip
    if problem.retry_after_s is not None:
        detail["retry_after"] = problem.retry_after_s
    return {"error": detail}
