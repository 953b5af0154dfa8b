"""Requests that both sides get alike: a chat completion for the server, its command line for the engine."""

import asyncio
import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.cpu_vs_llamacpp.cases import HELDOUT
from strata.cli.model import read_card
from strata.engine.protocol import Gen
from strata.server import openai
from strata.server.flight import Flight
from strata.server.generation import Generator

CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Asked:
    """One request: the fields of POST /v1/chat/completions, and what the engine is told for it."""

    fields: dict[str, Any]
    command: Gen


class Asks:
    """Never the same conversation twice; the same ones in every run. Replies do not end before their last token."""

    def __init__(self, model: Path, context: int) -> None:
        self._draw = random.Random(11)
        self._made = 0
        self._text = HELDOUT.read_text(encoding="utf-8")
        tokenizer = read_card(model).tokenizer
        self._endless = {str(number): -100 for number in tokenizer.end_ids}
        self._generator = Generator(_Context(context), tokenizer, name="demo")

    def conversations(self, count: int, tokens: int, characters: int = 400) -> list[Asked]:
        """`count` streams of `tokens` drawn tokens each, about as many characters of text."""
        return [self._one(tokens, characters) for _ in range(count)]

    def _one(self, tokens: int, characters: int) -> Asked:
        self._made += 1
        start = self._draw.randrange(len(self._text) - characters)
        text = f"{self._made}. Go on with this text: {self._text[start : start + characters]}"
        fields = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": tokens,
            "temperature": 0.8,
            "seed": self._made,
            "logit_bias": self._endless,
            "stream": True,
        }
        asked, grammar = openai.parse_chat(msgspec.json.encode(fields))
        ask = openai.to_ask(asked, self._generator.defaults, grammar)
        return Asked(fields, asyncio.run(self._generator.prepare(ask)).command)


class _Context:
    """An engine that is asked for nothing but its context."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    async def context(self) -> int:
        return self._tokens

    def request(self, command: Gen) -> AbstractAsyncContextManager[Flight]:
        raise NotImplementedError


def commands(asked: Sequence[Asked]) -> list[Gen]:
    """What the engine is told."""
    return [each.command for each in asked]
