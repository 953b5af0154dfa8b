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
from strata.server.problem import FieldError, Problem
from strata.server.sampling import Sampling
from strata.server.structured import grammar_of
from strata.text.grammar import Grammar

# Options that clients may send and that are not implemented, with the values that ask for nothing.
_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "n": (1,), "best_of": (1,), "tools": ([],), "tool_choice": ("none", "auto"), "functions": ([],),
    "function_call": ("none", "auto"), "audio": (), "prediction": (),
    "modalities": (["text"],), "web_search_options": (), "reasoning_budget_tokens": (-1,), "thinking_budget": (-1,),
    "ignore_eos": (False,), "min_tokens": (0,),
    "stop_token_ids": ([],), "typical_p": (1,), "mirostat": (0,), "dry_multiplier": (0,), "xtc_probability": (0,),
    "use_beam_search": (False,), "return_progress": (False,), "strata_mcp": (False,), "strata_checkpoint": (),
    "strata_prefix": (), "strata_tune": ({},), "experimental_speed_projection": (False,),
}  # fmt: skip


class StreamOptions(msgspec.Struct):
    """`stream_options`."""

    include_usage: bool | None = None


class Reasoning(msgspec.Struct):
    """`reasoning`, as some clients spell the effort."""

    effort: str | None = None


class ChatRequest(SamplingFields, kw_only=True):
    """The implemented fields of POST /v1/chat/completions, but for those that ask for a grammar."""

    messages: list[dict[str, Any]]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    repeat_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    stop: str | list[str] | None = None
    reasoning_effort: str | None = None
    reasoning: Reasoning | None = None
    enable_thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    @property
    def include_usage(self) -> bool:
        """Whether the client wants the usage in a chunk of its own."""
        return bool(self.stream_options and self.stream_options.include_usage)


def parse_chat(body: bytes) -> tuple[ChatRequest, Grammar | None]:
    """A request from its JSON body, and the grammar that it asks for. Raises FieldError."""
    fields = json_object(body)
    for name, neutral in _NEUTRAL.items():
        value = fields.get(name)
        if value is not None and value not in neutral:
            raise FieldError(f"{name} is not implemented by this server; leave it out.", name, "unsupported_parameter")
    request = converted(fields, ChatRequest, indices=False)
    grammar = grammar_of(fields)
    if not request.messages:
        raise FieldError("messages must hold at least one message.", "messages")
    return request, grammar


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
    stop = [request.stop] if isinstance(request.stop, str) else request.stop or []
    if not all(stop):
        raise FieldError("stop may not hold an empty text.", "stop")
    limit = request.max_completion_tokens if request.max_completion_tokens is not None else request.max_tokens
    return Ask(
        messages=[_message(index, message) for index, message in enumerate(request.messages)],
        sampling=_sampling(request, defaults),
        max_tokens=limit,
        stop=tuple(stop),
        thinking=thinking,
        effort=effort,
        logprobs=_logprobs(request),
        grammar=grammar,
        template_options=options,
    )


def _sampling(request: ChatRequest, defaults: Sampling) -> Sampling:
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


def _message(index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    where = f"messages[{index}]"
    role = message.get("role")
    if role in ("tool", "function") or message.get("tool_calls") or message.get("function_call"):
        raise FieldError(f"{where}: tool calls are not implemented by this server.", "messages", "unsupported_value")
    if role not in ("system", "developer", "user", "assistant"):
        raise FieldError(f"{where}.role must be system, developer, user or assistant, not {role!r}.", "messages")
    result = {"role": role, "content": _text(message.get("content"), f"{where}.content", role)}
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str):
        result["reasoning_content"] = reasoning
    return result


def _text(content: Any, where: str, role: str) -> str:
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        return ""
    if not isinstance(content, list):
        raise FieldError(f"{where} must be a text or a list of parts.", "messages")
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "input_text", "output_text"):
            raise FieldError(
                f"{where}[{index}]: this model reads text, not {kind!r} parts.", "messages", "unsupported_value"
            )
        if not isinstance(part.get("text"), str):
            raise FieldError(f"{where}[{index}].text must be a text.", "messages")
        texts.append(part["text"])
    return "".join(texts)


def error(problem: Problem) -> dict[str, Any]:
    """The body of an error."""
    detail: dict[str, Any] = {
        "message": problem.message, "type": problem.kind, "param": problem.param, "code": problem.code,
    }  # fmt: skip
    if problem.retry_after_s is not None:
        detail["retry_after"] = problem.retry_after_s
    return {"error": detail}
