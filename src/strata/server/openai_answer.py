"""The OpenAI form of answers (https://platform.openai.com/docs/api-reference/chat): whole and in chunks."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from strata.server import openai
from strata.server.choices import Choice
from strata.server.generation import End, Event, Reading
from strata.server.problem import Problem
from strata.server.reply import Said
from strata.server.scores import ScoredPiece, TokenScore
from strata.server.sse import KEEP_ALIVE, data
from strata.text import Part, Piece, Tokenizer
from strata.text.calls import CallArguments, CallClosed, CallOpened

LEAST_LOGPROB = -9999.0
"""What stands for minus infinity, which JSON cannot say."""
DONE = b"data: [DONE]\n\n"


class ChoicesAnswer:
    """Formats `count` replies to one request, `each` to a prompt: the same id, model and time in all their parts.

    `scored`: the request asked for log-probabilities. `include_usage`: it wants the usage in a chunk of its own.
    `progress`: it wants to hear how far its prompt is read.
    """

    prefix = ""
    whole_kind = ""
    chunk_kind = ""

    def __init__(
        self, model: str, tokenizer: Tokenizer, *, count: int = 1, each: int | None = None, scored: bool = False,
        include_usage: bool = False, progress: bool = False,
    ) -> None:  # fmt: skip
        self.id = f"{self.prefix}-{uuid.uuid4().hex}"
        self.model = model
        self.created = int(time.time())
        self._tokenizer = tokenizer
        self._count, self._each = count, each or count
        self._scored = scored
        self._include_usage = include_usage
        self._progress = progress
        self._ends: dict[int, End] = {}

    def whole(self, events: Sequence[Choice]) -> dict[str, Any]:
        """The whole answer as one object."""
        replies: list[list[Event]] = [[] for _ in range(self._count)]
        for index, event in events:
            replies[index].append(event)
            if isinstance(event, End):
                self._ends[index] = event
        end = self._combined()
        choices = [self._choice(index, reply) for index, reply in enumerate(replies)]
        return {**self._head(self.whole_kind), "choices": choices, "usage": usage(end), **_closing(end)}

    def opening(self) -> bytes:
        """What opens a stream."""
        return b""

    def frames(self, choice: Choice) -> bytes:
        """A chunk of a reply, or what closes it, and with the last the stream."""
        index, event = choice
        if isinstance(event, Reading):
            if not self._progress:
                return KEEP_ALIVE
            return data({**self._chunk(index, self._nothing()), "prompt_progress": _progress(event)})
        if isinstance(event, End):
            return self._close(index, event)
        part = self._part(index, event)
        return data(part) if part is not None else b""

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def failure(self, problem: Problem) -> bytes:
        return data(openai.error(problem)) + DONE

    def _close(self, index: int, end: End) -> bytes:
        """The closing chunk; the last has the usage in it or, where the client asked so, in one of its own after it."""
        self._ends[index] = end
        closing = self._chunk(index, self._nothing(), end.finish)
        if len(self._ends) < self._count:
            return data(closing)
        together = self._combined()
        closing |= _closing(together)
        if not self._include_usage:
            return data({**closing, "usage": usage(together)}) + DONE
        return data(closing) + data({**self._head(self.chunk_kind), "choices": [], "usage": usage(together)}) + DONE

    def _combined(self) -> End:
        """The counts of all replies together; a prompt is counted, and read, once for all replies to it."""
        ends = [end for _, end in sorted(self._ends.items())]
        prompts = ends[:: self._each]
        return replace(
            ends[0],
            prompt_tokens=sum(end.prompt_tokens for end in prompts),
            cached_tokens=sum(end.cached_tokens for end in prompts),
            completion_tokens=sum(end.completion_tokens for end in ends),
            reasoning_tokens=sum(end.reasoning_tokens for end in ends),
            prompt_ms=sum(end.prompt_ms for end in prompts),
            decode_ms=sum(end.decode_ms for end in ends),
            drafts_offered=sum(end.drafts_offered for end in ends),
            drafts_accepted=sum(end.drafts_accepted for end in ends),
            truncated=any(end.truncated for end in ends),
        )

    def _chunk(
        self, index: int, content: Mapping[str, Any], finish: str | None = None,
        logprobs: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        choice = {"index": index, **content, "logprobs": logprobs, "finish_reason": finish}
        return {**self._head(self.chunk_kind), "choices": [choice]}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    def _nothing(self) -> Mapping[str, Any]:
        """The content of a chunk that has none."""
        raise NotImplementedError

    def _part(self, index: int, event: Said) -> dict[str, Any] | None:
        """The chunk of an event, where it has one."""
        raise NotImplementedError

    def _choice(self, index: int, reply: Sequence[Event]) -> dict[str, Any]:
        """A whole reply."""
        raise NotImplementedError


class ChatAnswer(ChoicesAnswer):
    """Replies of /v1/chat/completions."""

    prefix, whole_kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def opening(self) -> bytes:
        first = {"delta": {"role": "assistant", "content": ""}}
        return b"".join(data(self._chunk(index, first)) for index in range(self._count))

    def _nothing(self) -> Mapping[str, Any]:
        return {"delta": {}}

    def _part(self, index: int, event: Said) -> dict[str, Any] | None:
        match event:
            case Piece(Part.ANSWER):
                return self._chunk(index, {"delta": {"content": event.text}}, logprobs=self._logprobs([event]))
            case Piece():
                return self._chunk(index, {"delta": {"reasoning_content": event.text}})
            case CallOpened():
                return self._chunk(index, _call(event.index, event, ""))
            case CallArguments():
                return self._chunk(index, _call(event.index, None, event.text))
        return None

    def _choice(self, index: int, reply: Sequence[Event]) -> dict[str, Any]:
        pieces = [event for event in reply if isinstance(event, Piece)]
        content: str | None = _joined(pieces, Part.ANSWER)
        calls = whole_calls(reply)
        message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
        if reasoning := _joined(pieces, Part.REASONING):
            message["reasoning_content"] = reasoning
        if calls:
            message["tool_calls"] = calls
        end = reply[-1]
        assert isinstance(end, End)
        return {"index": index, "message": message, "logprobs": self._logprobs(pieces), "finish_reason": end.finish}

    def _logprobs(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        if not self._scored:
            return None
        scores = [score for piece in pieces if isinstance(piece, ScoredPiece) for score in piece.scores]
        return {"content": [scored(score, self._tokenizer) for score in scores], "refusal": None}


def whole_calls(reply: Sequence[Event]) -> list[dict[str, Any]]:
    """The complete calls of a reply: one that was cut off is nothing that should be called."""
    texts: dict[int, str] = {}
    for event in reply:
        if isinstance(event, CallArguments):
            texts[event.index] = texts.get(event.index, "") + event.text
    closed = {event.index for event in reply if isinstance(event, CallClosed)}
    return [
        {"id": event.id, "type": "function", "function": {"name": event.name, "arguments": texts.get(event.index, "")}}
        for event in reply if isinstance(event, CallOpened) and event.index in closed
    ]  # fmt: skip


def _call(index: int, opened: CallOpened | None, arguments: str) -> dict[str, Any]:
    """The delta of a call: its name first, then pieces of its arguments."""
    if opened is None:
        call: dict[str, Any] = {"index": index, "function": {"arguments": arguments}}
    else:
        function = {"name": opened.name, "arguments": arguments}
        call = {"index": index, "id": opened.id, "type": "function", "function": function}
    return {"delta": {"tool_calls": [call]}}


def _progress(reading: Reading) -> dict[str, Any]:
    """`prompt_progress`, with the names that llama.cpp's server gave it."""
    return {
        "total": reading.total, "cache": reading.cached, "processed": reading.reached, "time_ms": round(reading.ms),
    }  # fmt: skip


def scored(score: TokenScore, tokenizer: Tokenizer) -> dict[str, Any]:
    """The log-probability of a token, and those of the likeliest."""

    def form(number: int, logprob: float) -> dict[str, Any]:
        text = tokenizer.token_bytes(number)
        return {
            "token": text.decode("utf-8", "replace"), "logprob": max(logprob, LEAST_LOGPROB), "bytes": list(text),
        }  # fmt: skip

    return {**form(score.id, score.logprob), "top_logprobs": [form(number, logprob) for number, logprob in score.top]}


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
