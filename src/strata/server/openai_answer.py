"""The OpenAI form of answers (https://platform.openai.com/docs/api-reference/chat): whole and in chunks."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from strata.server.generation import End
from strata.server.scores import ScoredPiece, TokenScore
from strata.text import Part, Piece, Tokenizer

LEAST_LOGPROB = -9999.0
"""What stands for minus infinity, which JSON cannot say."""


class ChatAnswer:
    """Formats one reply: the same id, model and time in all its parts.

    `scored`: the request asked for log-probabilities.
    """

    def __init__(self, model: str, tokenizer: Tokenizer, *, scored: bool = False) -> None:
        self.id = f"chatcmpl-{uuid.uuid4().hex}"
        self.model = model
        self._tokenizer = tokenizer
        self._scored = scored
        self.created = int(time.time())

    def completion(self, pieces: Sequence[Piece], end: End) -> dict[str, Any]:
        """The whole answer as one object."""
        message: dict[str, Any] = {"role": "assistant", "content": _joined(pieces, Part.ANSWER)}
        if reasoning := _joined(pieces, Part.REASONING):
            message["reasoning_content"] = reasoning
        choice = {"index": 0, "message": message, "logprobs": self._logprobs(pieces), "finish_reason": end.finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": usage(end), **_closing(end)}

    def first(self) -> dict[str, Any]:
        """The chunk that opens a stream."""
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, piece: Piece) -> dict[str, Any]:
        """A chunk of text."""
        delta = {"content" if piece.part is Part.ANSWER else "reasoning_content": piece.text}
        return self._chunk(delta, logprobs=self._logprobs([piece]) if piece.part is Part.ANSWER else None)

    def last(self, end: End, include_usage: bool) -> list[dict[str, Any]]:
        """The closing chunk, with the usage in it or, where the client asked so, in one of its own after it."""
        closing = {**self._chunk({}, end.finish), **_closing(end)}
        if not include_usage:
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
        return {"content": [self._score(score) for score in scores], "refusal": None}

    def _score(self, score: TokenScore) -> dict[str, Any]:
        return {
            **self._token(score.id, score.logprob),
            "top_logprobs": [self._token(number, logprob) for number, logprob in score.top],
        }

    def _token(self, number: int, logprob: float) -> dict[str, Any]:
        data = self._tokenizer.token_bytes(number)
        return {
            "token": data.decode("utf-8", "replace"), "logprob": max(logprob, LEAST_LOGPROB), "bytes": list(data),
        }  # fmt: skip

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
