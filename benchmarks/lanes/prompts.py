"""Prompts of conversations, each one new: real text for a model with a vocabulary of words, else random ids."""

import json
import lzma
import random
from pathlib import Path

import gguf

from benchmarks.cpu_vs_llamacpp.cases import HELDOUT, ROOT
from strata.text.tokenizer import Tokenizer
from strata.weights import open_checkpoint

CHATS = ROOT / "tests" / "model" / "evaluation_mix_1.jsonl.xz"
OPEN, CLOSE = "<|im_start|>user\n", "<|im_end|>\n"
ANSWER = "<|im_start|>assistant\n"


class Prompts:
    """Never the same prompt twice, and no two with a prefix worth keeping; the same ones in every run."""

    def __init__(self, path: Path, words: bool) -> None:
        self._draw = random.Random(5)
        self._made = 0
        if words:
            self._tokenizer = Tokenizer.from_metadata(open_checkpoint(path).metadata)
            chats = [json.loads(line) for line in lzma.decompress(CHATS.read_bytes()).decode().splitlines()]
            prose = [HELDOUT.read_text(encoding="utf-8")]
            prose += [_body(c["prompt"]) for c in chats if c["kind"].startswith("recall")]
            self._prose = self._encode("\n\n".join(prose))
            tasks = [c["prompt"].removeprefix(OPEN) for c in chats if len(c["prompt"]) < 400]
            self._tasks = [self._encode(f"\n\n{task}") for task in tasks]
        else:
            self._prose = self._tasks = []
            self._vocab = int(gguf.GGUFReader(path).fields["qwen4exp.vocab_size"].contents())

    def conversation(self, least: int, most: int) -> list[int]:
        """A prompt of about `least` to `most` tokens: in turn a passage, and a passage with a task behind it."""
        length = self._draw.randint(least, most)
        self._made += 1
        if not self._prose or self._made % 2:
            return self.passage(length)
        task = self._draw.choice(self._tasks)
        begin = self._encode(OPEN)
        return [*begin, *self.passage(max(8, length - len(begin) - len(task))), *task]

    def passage(self, length: int) -> list[int]:
        """`length` tokens that follow one another in the text."""
        if not self._prose:
            return [self._draw.randrange(1, self._vocab - 1) for _ in range(length)]
        start = self._draw.randrange(len(self._prose))
        return [self._prose[(start + i) % len(self._prose)] for i in range(length)]

    def turn(self, length: int) -> list[int]:
        """A user's next turn of `length` tokens, with what opens the answer."""
        if not self._prose:
            return self.passage(length)
        begin, end = self._encode(CLOSE + OPEN), self._encode(CLOSE + ANSWER)
        return [*begin, *self.passage(max(1, length - len(begin) - len(end))), *end]

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, parse_special=True)


def _body(chat: str) -> str:
    """The text of the first user turn."""
    return chat.removeprefix(OPEN).split("<|im_end|>")[0]
