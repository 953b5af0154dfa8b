"""The OpenAI Responses form of answers (https://platform.openai.com/docs/api-reference/responses-streaming)."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from strata.server import opaque
from strata.server.generation import Ask, End, Event, Reading
from strata.server.openai_answer import scored
from strata.server.problem import Problem
from strata.server.responses import ResponsesRequest
from strata.server.responses_tools import Offered, Origin
from strata.server.segments import Begun, Change, Ended, Grown, Kind, Segment, Segments
from strata.server.sse import KEEP_ALIVE, named
from strata.text import Tokenizer

_PREFIXES = {"reasoning": "rs", "message": "msg", "function_call": "fc", "custom_tool_call": "ctc"}


class ResponseAnswer:
    """Formats one reply as items that follow one another; all events are numbered.

    `on_end` is called with the response object and the neutral message of the assistant, before they are sent.
    """

    def __init__(
        self, model: str, tokenizer: Tokenizer, request: ResponsesRequest, ask: Ask, tools: Offered,
        on_end: Callable[[dict[str, Any], dict[str, Any]], None] = lambda response, message: None,
    ) -> None:  # fmt: skip
        self.id = f"resp_{uuid.uuid4().hex}"
        self.model = model
        self.created = int(time.time())
        self._tokenizer = tokenizer
        self._request = request
        self._ask = ask
        self._tools = tools
        self._on_end = on_end
        self._segments = Segments()
        self._ids: dict[int, str] = {}
        self._number = 0

    def whole(self, events: Sequence[Event]) -> dict[str, Any]:
        """The whole answer as one object. A call that was cut off is no part of it."""
        end = events[-1]
        assert isinstance(end, End)
        self._segments.all(events)
        return self._finished(end)

    def opening(self) -> bytes:
        response = self._response("in_progress")
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def frames(self, event: Event) -> bytes:
        if isinstance(event, Reading):
            return self.keep_alive()
        frames = b"".join(map(self._change, self._segments.push(event)))
        if isinstance(event, End):
            response = self._finished(event)
            frames += self._event(f"response.{response['status']}", response=response)
        return frames

    def keep_alive(self) -> bytes:
        """While the prompt is read, that it is; later nothing that a client would take for news."""
        if self._segments.parts:
            return KEEP_ALIVE
        return self._event("response.in_progress", response=self._response("in_progress"))

    def failure(self, problem: Problem) -> bytes:
        error = {"code": _code(problem), "message": problem.message}
        return self._event("response.failed", response={**self._response("failed"), "error": error})

    def _finished(self, end: End) -> dict[str, Any]:
        parts = self._segments.parts
        cut = end.finish == "length" or not all(part.whole for part in parts)
        response = self._response("incomplete" if cut else "completed")
        response["output"] = [
            self._item(part, "incomplete" if cut and part is parts[-1] else "completed")
            for part in parts if part.whole
        ]  # fmt: skip
        response["usage"] = usage(end)
        if cut:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            response["completed_at"] = int(time.time())
        self._on_end(response, self._message())
        return response

    def _message(self) -> dict[str, Any]:
        """The reply as the neutral message that later turns show to the model."""
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        for part in self._segments.parts:
            if part.kind is Kind.TEXT:
                message["content"] += part.text
            elif part.kind is Kind.THINKING:
                message["reasoning_content"] = message.get("reasoning_content", "") + part.text
            elif part.call is not None and part.whole:
                function = {"name": part.call.name, "arguments": msgspec.json.decode(part.text or "{}")}
                call = {"id": part.call.id, "type": "function", "function": function}
                message.setdefault("tool_calls", []).append(call)
        return message

    def _change(self, change: Change) -> bytes:
        segment = change.segment
        match change:
            case Begun():
                return self._begin(segment)
            case Grown() if segment.kind is Kind.TEXT:
                scores = [scored(score, self._tokenizer) for score in change.scores]
                return self._of("response.output_text.delta", segment, content_index=0, delta=change.text,
                                logprobs=scores)  # fmt: skip
            case Grown() if segment.kind is Kind.THINKING:
                return self._of(f"response.{self._thinking}_text.delta", segment, delta=change.text, **self._at)
            case Grown() if self._origin(segment).kind == "function":
                return self._of("response.function_call_arguments.delta", segment, delta=change.text)
            case Ended() if segment.whole:
                return self._end(segment)
        return b""

    @property
    def _thinking(self) -> str:
        return "reasoning_summary" if self._request.summarises else "reasoning"

    @property
    def _at(self) -> dict[str, int]:
        return {"summary_index" if self._request.summarises else "content_index": 0}

    def _begin(self, segment: Segment) -> bytes:
        item = {**self._item(segment, "in_progress"), "status": "in_progress"}
        added = self._event("response.output_item.added", output_index=segment.index, item=item)
        if segment.kind is Kind.TEXT:
            return added + self._of("response.content_part.added", segment, content_index=0, part=_part("output_text"))
        if segment.kind is Kind.THINKING:
            return added + self._of(f"response.{self._holder}_part.added", segment, part=_part(self._kind), **self._at)
        return added

    def _end(self, segment: Segment) -> bytes:
        item = self._item(segment, "completed")
        frames = b""
        if segment.kind is Kind.TEXT:
            part = item["content"][0]
            frames = self._of("response.output_text.done", segment, content_index=0, text=segment.text,
                              logprobs=part["logprobs"])  # fmt: skip
            frames += self._of("response.content_part.done", segment, content_index=0, part=part)
        elif segment.kind is Kind.THINKING:
            frames = self._of(f"response.{self._thinking}_text.done", segment, text=segment.text, **self._at)
            part = _part(self._kind, segment.text)
            frames += self._of(f"response.{self._holder}_part.done", segment, part=part, **self._at)
        elif item["type"] == "function_call":
            frames = self._of("response.function_call_arguments.done", segment, name=item["name"],
                              arguments=item["arguments"])  # fmt: skip
        else:
            # The JSON around a custom tool's text is not its client's business, so the text is told in one piece.
            frames = self._of("response.custom_tool_call_input.delta", segment, delta=item["input"])
            frames += self._of("response.custom_tool_call_input.done", segment, input=item["input"])
        return frames + self._event("response.output_item.done", output_index=segment.index, item=item)

    @property
    def _holder(self) -> str:
        return "reasoning_summary" if self._request.summarises else "content"

    @property
    def _kind(self) -> str:
        return "summary_text" if self._request.summarises else "reasoning_text"

    def _origin(self, segment: Segment) -> Origin:
        assert segment.call is not None
        return self._tools.origins.get(segment.call.name, Origin("function", segment.call.name))

    def _item(self, segment: Segment, status: str) -> dict[str, Any]:
        """An output item; one that has begun has no content yet."""
        if segment.kind is Kind.THINKING:
            return self._reasoning(segment, status)
        if segment.kind is Kind.TEXT:
            scores = [scored(score, self._tokenizer) for score in segment.scores]
            content = [] if status == "in_progress" else [{**_part("output_text", segment.text), "logprobs": scores}]
            return {
                "id": self._item_id(segment, "message"), "type": "message", "status": status, "role": "assistant",
                "content": content,
            }  # fmt: skip
        origin = self._origin(segment)
        kind = "function_call" if origin.kind == "function" else "custom_tool_call"
        assert segment.call is not None
        item = {
            "id": self._item_id(segment, kind), "type": kind, "status": status, "call_id": segment.call.id,
            "name": origin.name, **({"namespace": origin.namespace} if origin.namespace else {}),
        }  # fmt: skip
        if kind == "function_call":
            return {**item, "arguments": segment.text}
        return {**item, "input": "" if status == "in_progress" else _input(segment.text)}

    def _reasoning(self, segment: Segment, status: str) -> dict[str, Any]:
        item: dict[str, Any] = {"id": self._item_id(segment, "reasoning"), "type": "reasoning", "summary": []}
        if self._request.carries_thinking:
            item["encrypted_content"] = opaque.wrap(segment.text)
        parts = [] if status == "in_progress" else [_part(self._kind, segment.text)]
        if self._request.summarises:
            return {**item, "summary": parts}
        return {**item, "content": parts}

    def _item_id(self, segment: Segment, kind: str) -> str:
        return self._ids.setdefault(segment.index, f"{_PREFIXES[kind]}_{uuid.uuid4().hex}")

    def _response(self, status: str) -> dict[str, Any]:
        asked, ask = self._request, self._ask
        text = {"format": {"type": "text"}, "verbosity": "medium", **(asked.text or {})}
        reasoning = asked.reasoning or {}
        return {
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "background": False,
            "completed_at": None, "error": None, "incomplete_details": None, "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens, "model": self.model, "output": [],
            "parallel_tool_calls": ask.tool_choice.parallel, "previous_response_id": asked.previous_response_id,
            "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
            "store": asked.store is not False, "temperature": ask.sampling.temperature, "text": text,
            "tool_choice": asked.tool_choice or "auto", "tools": self._tools.served,
            "top_logprobs": ask.logprobs or 0, "top_p": ask.sampling.top_p,
            "truncation": asked.truncation or "disabled", "usage": None, "metadata": asked.metadata or {},
        }  # fmt: skip

    def _of(self, kind: str, segment: Segment, **fields: Any) -> bytes:
        """An event about an item."""
        return self._event(kind, item_id=self._ids[segment.index], output_index=segment.index, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        frame = named({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return frame


def usage(end: End) -> dict[str, Any]:
    """`usage`: token counts of a reply."""
    return {
        "input_tokens": end.prompt_tokens,
        "input_tokens_details": {"cached_tokens": end.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": end.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": end.reasoning_tokens},
        "total_tokens": end.prompt_tokens + end.completion_tokens,
    }


def _part(kind: str, text: str = "") -> dict[str, Any]:
    extra: Mapping[str, Any] = {"annotations": [], "logprobs": []} if kind == "output_text" else {}
    return {"type": kind, "text": text, **extra}


def _input(arguments: str) -> str:
    """A custom tool's text, out of the JSON of the function that the model called."""
    value = msgspec.json.decode(arguments or "{}").get("input", "")
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _code(problem: Problem) -> str:
    """The code of a failed response: clients know these, and the message says the rest."""
    if problem.status == 400:
        return problem.code
    return "rate_limit_exceeded" if problem.code == "kv_pool_full" else "server_error"
