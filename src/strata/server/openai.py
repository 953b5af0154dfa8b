"""The OpenAI form of requests, answers and errors (https://platform.openai.com/docs/api-reference/chat).

Fields that this server does not know are allowed: clients send many. Fields that it knows and does not implement are
refused by name, unless they ask for what happens anyway.
"""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from strata.errors import RequestError, StrataError
from strata.server.failures import EngineDied, EngineRefused, EngineStalled, EngineUnavailable
from strata.server.generation import Ask, ContextError, End, Sampling, ValueRangeError
from strata.text import Part, Piece


class FieldError(RequestError):
    """A request field that is wrong or asks for what is not implemented; `param` names it."""

    def __init__(self, message: str, param: str | None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


# Options that clients may send and that are not implemented, with the values that ask for nothing.
_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "n": (1,), "best_of": (1,), "tools": ([],), "tool_choice": ("none", "auto"), "functions": ([],),
    "function_call": ("none", "auto"), "response_format": ({"type": "text"},), "logprobs": (False,),
    "top_logprobs": (0,), "logit_bias": ({},), "presence_penalty": (0,), "frequency_penalty": (0,),
    "repetition_penalty": (1,), "repeat_penalty": (1, 0), "penalty_last_n": (0, 64), "audio": (), "prediction": (),
    "modalities": (["text"],), "web_search_options": (), "reasoning_budget_tokens": (-1,), "thinking_budget": (-1,),
    "grammar": ("",), "json_schema": (), "guided_json": (), "guided_regex": (), "guided_choice": (),
    "guided_grammar": (), "structured_outputs": (), "ignore_eos": (False,), "min_tokens": (0,),
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
        sampling=Sampling(
            temperature=defaults.temperature if request.temperature is None else request.temperature,
            top_p=defaults.top_p if request.top_p is None else request.top_p,
            top_k=defaults.top_k if request.top_k is None else max(request.top_k, 0),
            min_p=defaults.min_p if request.min_p is None else request.min_p,
            seed=defaults.seed if request.seed is None else request.seed,
        ),
        max_tokens=limit,
        stop=tuple(stop),
        thinking=thinking,
        effort=effort,
        template_options=options,
    )


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


class ChatAnswer:
    """Formats one reply: the same id, model and time in all its parts."""

    def __init__(self, model: str) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self.model = model
        self.created = int(time.time())

    def completion(self, pieces: Sequence[Piece], end: End) -> dict[str, Any]:
        """The whole answer as one object."""
        message: dict[str, Any] = {"role": "assistant", "content": _joined(pieces, Part.ANSWER)}
        if reasoning := _joined(pieces, Part.REASONING):
            message["reasoning_content"] = reasoning
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": end.finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage(end), **_closing(end)}

    def first(self) -> dict[str, Any]:
        """The chunk that opens a stream."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> dict[str, Any]:
        """A chunk of text."""
        return self._chunk({"content" if piece.part is Part.ANSWER else "reasoning_content": piece.text})

    def last(self, end: End, include_usage: bool) -> list[dict[str, Any]]:
        """The closing chunk, with the usage in it or, where the client asked so, in one of its own after it."""
        closing = {**self._chunk({}, end.finish), **_closing(end)}
        if not include_usage:
            return [{**closing, "usage": usage(end)}]
        return [closing, {**self._head("chat.completion.chunk"), "choices": [], "usage": usage(end)}]

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def _joined(pieces: Sequence[Piece], part: Part) -> str:
    return "".join(piece.text for piece in pieces if piece.part is part)


def usage(end: End) -> dict[str, Any]:
    """`usage`: token counts of a reply."""
    return {
        "prompt_tokens": end.prompt_tokens,
        "completion_tokens": end.completion_tokens,
        "total_tokens": end.prompt_tokens + end.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": end.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": end.reasoning_tokens},
    }


def _closing(end: End) -> dict[str, Any]:
    return {"timings": timings(end), **({"truncated": True} if end.truncated else {})}


def timings(end: End) -> dict[str, Any]:
    """`timings`, with the names that llama.cpp's server gave them."""
    read = end.prompt_tokens - end.cached_tokens
    return {
        "cache_n": end.cached_tokens,
        **_speeds("prompt", read, end.prompt_ms),
        **_speeds("predicted", end.completion_tokens, end.decode_ms),
        "draft_n": end.drafts_offered,
        "draft_n_accepted": end.drafts_accepted,
    }


def _speeds(name: str, count: int, ms: float) -> dict[str, Any]:
    return {
        f"{name}_n": count,
        f"{name}_ms": ms,
        f"{name}_per_token_ms": ms / count if count else 0.0,
        f"{name}_per_second": 1000 * count / ms if ms > 0 else 0.0,
    }


def error(failure: StrataError) -> tuple[int, dict[str, Any], dict[str, str]]:
    """HTTP status, body and headers of an error."""
    status, kind, code, param = 500, "server_error", "internal_error", None
    retry_after: int | None = None
    match failure:
        case ContextError():
            status, kind, code, param = 400, "invalid_request_error", "context_length_exceeded", "messages"
        case FieldError():
            status, kind, code, param = 400, "invalid_request_error", failure.code or "invalid_value", failure.param
        case ValueRangeError():
            status, kind, code, param = 400, "invalid_request_error", "invalid_value", failure.name
        case RequestError():
            status, kind, code = 400, "invalid_request_error", "invalid_value"
        case EngineRefused() if failure.about_request:
            status, kind, code = 400, "invalid_request_error", failure.code
        case EngineUnavailable() | EngineDied() | EngineStalled():
            status, kind, code, retry_after = 503, "engine_error", failure.code, failure.retry_after_s
        case EngineRefused():
            status, kind, code, retry_after = 500, "engine_error", failure.code, failure.retry_after_s
            status = 503 if code == "kv_pool_full" else 500
    detail: dict[str, Any] = {"message": str(failure), "type": kind, "param": param, "code": code}
    if retry_after is not None:
        detail["retry_after"] = retry_after
    return status, {"error": detail}, {} if retry_after is None else {"Retry-After": str(retry_after)}


def plain_error(message: str, kind: str, code: str) -> dict[str, Any]:
    """An error body that no StrataError stands behind (unknown path, wrong key)."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}
