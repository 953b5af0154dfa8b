"""The OpenAI form of requests and errors (https://platform.openai.com/docs/api-reference/chat).

Fields that this server does not know are allowed: clients send many. Fields that it knows and does not implement are
refused by name, unless they ask for what happens anyway.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from strata.server.generation import Ask
from strata.server.problem import FieldError, Problem
from strata.server.sampling import Sampling

# Options that clients may send and that are not implemented, with the values that ask for nothing.
_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "n": (1,), "best_of": (1,), "tools": ([],), "tool_choice": ("none", "auto"), "functions": ([],),
    "function_call": ("none", "auto"), "response_format": ({"type": "text"},), "audio": (), "prediction": (),
    "modalities": (["text"],), "web_search_options": (), "reasoning_budget_tokens": (-1,), "thinking_budget": (-1,),
    "grammar": ("",), "json_schema": (), "guided_json": (), "guided_regex": (), "guided_choice": (),
    "guided_grammar": (), "structured_outputs": (), "ignore_eos": (False,), "min_tokens": (0,),
    "stop_token_ids": ([],), "typical_p": (1,), "mirostat": (0,), "dry_multiplier": (0,), "xtc_probability": (0,),
    "use_beam_search": (False,), "return_progress": (False,), "strata_mcp": (False,), "strata_checkpoint": (),
    "strata_prefix": (), "strata_tune": ({},), "experimental_speed_projection": (False,),
}  # fmt: skip


MOST_LOGPROBS = 20


class StreamOptions(msgspec.Struct):
    """`stream_options`."""

    include_usage: bool | None = None


class Reasoning(msgspec.Struct):
    """`reasoning`, as some clients spell the effort."""

    effort: str | None = None


class ChatRequest(msgspec.Struct):
    """The implemented fields of POST /v1/chat/completions."""

    messages: list[dict[str, Any]]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    repeat_penalty: float | None = None
    penalty_last_n: int | None = None
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


def parse_chat(body: bytes) -> ChatRequest:
    """A request from its JSON body. Raises FieldError."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FieldError(f"The body is not a JSON object: {error}.", None) from None
    for name, neutral in _NEUTRAL.items():
        value = fields.get(name)
        if value is not None and value not in neutral:
            raise FieldError(f"{name} is not implemented by this server; leave it out.", name, "unsupported_parameter")
    try:
        request = msgspec.convert(fields, ChatRequest)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        param = path.strip("`.").split("[")[0] or None
        raise FieldError(f"{param}: {reason}." if param else f"{reason}.", param) from None
    if not request.messages:
        raise FieldError("messages must hold at least one message.", "messages")
    return request


def to_ask(request: ChatRequest, defaults: Sampling) -> Ask:
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
        template_options=options,
    )


def _sampling(request: ChatRequest, defaults: Sampling) -> Sampling:
    given = {
        name: value
        for name in ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty",
                     "repetition_penalty", "penalty_last_n")
        if (value := getattr(request, name)) is not None
    }  # fmt: skip
    if request.top_k is not None:
        given["top_k"] = max(request.top_k, 0)
    if request.repeat_penalty and request.repetition_penalty is None:
        given["repetition_penalty"] = request.repeat_penalty
    if request.logit_bias:
        given["logit_bias"] = {_token_id(key): value for key, value in request.logit_bias.items()}
    return replace(defaults, **given)


def _token_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 10):
        raise FieldError(f"logit_bias: {key!r} is not a token id.", "logit_bias")
    return int(key)


def _logprobs(request: ChatRequest) -> int | None:
    top = request.top_logprobs or 0
    if not request.logprobs:
        if top:
            raise FieldError("top_logprobs needs logprobs to be true.", "top_logprobs")
        return None
    if not 0 <= top <= MOST_LOGPROBS:
        raise FieldError(f"top_logprobs must be from 0 to {MOST_LOGPROBS}, not {top}.", "top_logprobs")
    return top


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
