"""Requests that both sides get alike: a chat completion for the server, its command line for the engine."""

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cpu_vs_llamacpp.cases import HELDOUT
from benchmarks.rounds import SideError
from strata.cli.model import read_card
from strata.engine.protocol import Gen
from strata.text import ChatTemplate

CHAT = "/v1/chat/completions"


@dataclass(frozen=True)
class Asked:
    """One request: the fields of POST /v1/chat/completions, and what the engine is told for it."""

    fields: dict[str, Any]
    command: Gen


class Asks:
    """Never the same conversation twice; the same ones in every run. Replies do not end before their last token."""

    def __init__(self, model: Path) -> None:
        self._draw = random.Random(11)
        self._made = 0
        self._text = HELDOUT.read_text(encoding="utf-8")
        self._tokenizer = read_card(model).tokenizer
        source = self._tokenizer.vocabulary.chat_template
        if source is None:
            raise SideError(f"{model} has no chat template")
        self._template = ChatTemplate(source, bos_token="", eos_token="", name=model.name)
        self._endless = dict.fromkeys(sorted(self._tokenizer.end_ids), -100.0)

    def conversations(self, count: int, tokens: int, characters: int = 400) -> list[Asked]:
        """`count` streams of `tokens` drawn tokens each, after about as many characters of text."""
        return [self._one(tokens, characters) for _ in range(count)]

    def _one(self, tokens: int, characters: int) -> Asked:
        self._made += 1
        start = self._draw.randrange(len(self._text) - characters)
        text = f"{self._made}. Go on with this text: {self._text[start : start + characters]}"
        messages = [{"role": "user", "content": text}]
        drawn: dict[str, Any] = {"temperature": 0.8, "top_p": 0.95, "top_k": 20, "seed": self._made}
        bias = {str(number): value for number, value in self._endless.items()}
        fields = {"messages": messages, "max_tokens": tokens, "stream": True, "logit_bias": bias, **drawn}
        # The text holds marks of conversations, which are no control tokens in a user's message.
        prompt = self._template.render([{"role": "user", "content": self._tokenizer.quote(text)}], options={})
        ids = self._tokenizer.encode(prompt, parse_special=True, add_special=True)
        return Asked(fields, Gen(tokens, tuple(ids), logit_bias=tuple(self._endless.items()), **drawn))
