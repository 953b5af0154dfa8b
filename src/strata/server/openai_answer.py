"""The OpenAI form of answers (https://platform.openai.com/docs/api-reference/chat): whole and in chunks."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from strata.server import openai
from strata.server.generation import End, Event, Reading
from strata.server.problem import Problem
from strata.server.scores import ScoredPiece, TokenScore
from strata.server.sse import KEEP_ALIVE, data
from strata.text import Part, Piece, Tokenizer

LEAST_LOGPROB = -9999.0
"""What stands for minus infinity, which JSON cannot say."""
DONE = b"data: [DONE]\n\n"


class ChatAnswer:
    """Formats one reply: the same id, model and time in all its parts.

    `scored`: the request asked for log-probabilities. `include_usage`: it wants the usage in a chunk of its own.
    """

    def __init__(
        self, model: str, tokenizer: Tokenizer, *, scored: bool = False, include_usage: bool = False
    ) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self.model = model
        self._tokenizer = tokenizer
        self._scored = scored
        self._include_usage = include_usage
        self.created = int(time.time())

    def whole(self, events: Sequence[Event]) -> dict[str, Any]:
        """The whole answer as one object."""
        end = events[-1]
        assert isinstance(end, End)
        pieces = [event for event in events if isinstance(event, Piece)]
        message: dict[str, Any] = {"role": "assistant", "content": _joined(pieces, Part.ANSWER)}
        if reasoning := _joined(pieces, Part.REASONING):
            message["reasoning_content"] = reasoning
        choice = {"index": 0, "message": message, "logprobs": self._logprobs(pieces), "finish_reason": end.finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage(end), **_closing(end)}

    def opening(self) -> bytes:
        """The chunk that opens a stream."""
        return data(self._chunk({"role": "assistant", "content": ""}))

    def frames(self, event: Event) -> bytes:
        """A chunk of text, or what closes the stream."""
        match event:
            case Piece():
                return data(self._piece(event))
            case End():
                return b"".join(map(data, self._last(event))) + DONE
            case Reading():
                return KEEP_ALIVE
        return b""

    def keep_alive(self) -> bytes:
        return KEEP_ALIVE

    def failure(self, problem: Problem) -> bytes:
        return data(openai.error(problem)) + DONE

    def _piece(self, piece: Piece) -> dict[str, Any]:
        delta = {"content" if piece.part is Part.ANSWER else "reasoning_content": piece.text}
        return self._chunk(delta, logprobs=self._logprobs([piece]) if piece.part is Part.ANSWER else None)

    def _last(self, end: End) -> list[dict[str, Any]]:
        """The closing chunk, with the usage in it or, where the client asked so, in one of its own after it."""
        closing = {**self._chunk({}, end.finish), **_closing(end)}
        if not self._include_usage:
            return [{**closing, "usage": usage(end)}]
        return [closing, {**self._head("chat.completion.chunk"), "choices": [], "usage": usage(end)}]

    def _chunk(
        self, delta: Mapping[str, Any], finish: str | None = None, logprobs: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _logprobs(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        if not self._scored:
            return None
        scores = [score for piece in pieces if isinstance(piece, ScoredPiece) for score in piece.scores]
        return {"content": [scored(score, self._tokenizer) for score in scores], "refusal": None}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


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
