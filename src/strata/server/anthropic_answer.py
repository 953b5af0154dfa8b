"""The Anthropic form of answers (https://docs.anthropic.com/en/api/messages-streaming): whole and as events."""

import base64
import hashlib
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec

from strata.server import anthropic, opaque
from strata.server.generation import End, Event, Reading
from strata.server.problem import Problem
from strata.server.segments import Begun, Change, Ended, Grown, Kind, Segment, Segments
from strata.server.sse import named

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_DELTAS = {
    Kind.THINKING: ("thinking_delta", "thinking"), Kind.TEXT: ("text_delta", "text"),
    Kind.CALL: ("input_json_delta", "partial_json"),
}  # fmt: skip


class MessagesAnswer:
    """Formats one reply, as content blocks that follow one another.

    `shows_thinking` False: thinking blocks are empty, and their signature carries the thinking for later turns.
    """

    def __init__(
        self, model: str, prompt_tokens: int, *, request_id: str | None = None, shows_thinking: bool = True
    ) -> None:
        self.id = f"msg_{uuid.uuid4().hex}"
        self.model = model
        self._prompt_tokens = prompt_tokens
        self._request_id = request_id
        self._shows_thinking = shows_thinking
        self._segments = Segments()

    def whole(self, events: Sequence[Event]) -> dict[str, Any]:
        """The whole answer as one object. A call that was cut off is no part of it."""
        end = events[-1]
        assert isinstance(end, End)
        content = [self._block(segment) for segment in self._segments.all(events)]
        return {**self._message(), "content": content, **_stop(end), "usage": usage(end)}

    def opening(self) -> bytes:
        """The start of a stream. How much of the prompt was cached is not known yet, so all of it is counted."""
        start = {
            "input_tokens": self._prompt_tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
            "output_tokens": 0,
        }  # fmt: skip
        message = {**self._message(), "content": [], "stop_reason": None, "stop_sequence": None, "usage": start}
        return _event("message_start", message=message)

    def frames(self, event: Event) -> bytes:
        if isinstance(event, Reading):
            return self.keep_alive()
        frames = b"".join(map(self._change, self._segments.push(event)))
        if isinstance(event, End):
            frames += _event("message_delta", delta=_stop(event), usage=usage(event)) + _event("message_stop")
        return frames

    def keep_alive(self) -> bytes:
        return _event("ping")

    def failure(self, problem: Problem) -> bytes:
        return named(anthropic.error(problem, self._request_id))

    def _message(self) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "role": "assistant", "model": self.model}

    def _change(self, change: Change) -> bytes:
        index, kind = change.segment.index, change.segment.kind
        hidden = kind is Kind.THINKING and not self._shows_thinking
        match change:
            case Begun():
                return _event("content_block_start", index=index, content_block=_opened(change.segment))
            case Grown() if not hidden:
                delta, field = _DELTAS[kind]
                return _event("content_block_delta", index=index, delta={"type": delta, field: change.text})
            case Ended():
                signed = b""
                if kind is Kind.THINKING:
                    signature = {"type": "signature_delta", "signature": self._signature(change.segment.text)}
                    signed = _event("content_block_delta", index=index, delta=signature)
                return signed + _event("content_block_stop", index=index)
        return b""

    def _block(self, segment: Segment) -> dict[str, Any]:
        """A content block of the whole answer."""
        block = _opened(segment)
        if segment.kind is Kind.CALL:
            return {**block, "input": msgspec.json.decode(segment.text)}
        if segment.kind is Kind.TEXT:
            return {**block, "text": segment.text}
        shown = segment.text if self._shows_thinking else ""
        return {**block, "thinking": shown, "signature": self._signature(segment.text)}

    def _signature(self, thought: str) -> str:
        """What tells clients that a thinking block may be sent back: a digest, or the very thinking if it is hidden."""
        if not self._shows_thinking:
            return opaque.wrap(thought)
        return base64.b64encode(hashlib.sha256(thought.encode("utf-8", "replace")).digest()).decode()


def _opened(segment: Segment) -> dict[str, Any]:
    """A content block as it begins."""
    if segment.call is not None:
        number = segment.call.id.removeprefix("call_")
        return {"type": "tool_use", "id": f"toolu_{number}", "name": segment.call.name, "input": {}}
    if segment.kind is Kind.TEXT:
        return {"type": "text", "text": ""}
    return {"type": "thinking", "thinking": "", "signature": ""}


def usage(end: End) -> dict[str, Any]:
    """`usage`: the prompt's tokens are those read now and those that were cached, never one of them twice.

    At least one is read now: for agents, 0 means that the number of the stream's start still holds.
    """
    read = max(1, end.prompt_tokens - end.cached_tokens)
    return {
        "input_tokens": read,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": end.prompt_tokens - read,
        "output_tokens": end.completion_tokens,
        "output_tokens_details": {"thinking_tokens": end.reasoning_tokens},
    }


def _stop(end: End) -> dict[str, Any]:
    reason = _STOP_REASONS[end.finish] if end.stop_string is None else "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": end.stop_string}


def _event(kind: str, **fields: Any) -> bytes:
    return named({"type": kind, **fields})
