"""What is measured: models and cases, and the tokens that every side is given alike."""

import random
from dataclasses import dataclass, replace
from pathlib import Path

import gguf

from benchmarks import random_gguf
from strata.text.tokenizer import Tokenizer
from strata.weights import open_checkpoint

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "src" / "strata" / "data" / "strata-demo.gguf"
HELDOUT = ROOT / "tests" / "oracles" / "heldout.txt"
WINDOW = 512  # rows of a prompt in one step


@dataclass(frozen=True)
class Case:
    """One case: `kind` prompt, decode, together or drafted; `tokens` a measurement (each lane), `lanes` at once."""

    name: str
    kind: str
    tokens: int
    lanes: int = 1
    drafts: int = 0

    @property
    def window(self) -> int:
        """Rows of a step."""
        return min(self.tokens, WINDOW) if self.kind == "prompt" else self.lanes


FULL = (
    Case("prompt 256", "prompt", 256),
    Case("decode", "decode", 64),
    Case("prompt 2048", "prompt", 2048),
    Case("2 conversations", "together", 32, 2),
    Case("4 conversations", "together", 24, 4),
    Case("8 conversations", "together", 16, 8),
)
QUICK = (
    Case("prompt 64", "prompt", 64),
    Case("decode", "decode", 8),
    Case("prompt 128", "prompt", 128),
    Case("2 conversations", "together", 4, 2),
    Case("4 conversations", "together", 4, 4),
    Case("8 conversations", "together", 4, 8),
)
DRAFTED = tuple(Case(f"text, drafts {n}" if n else "text, no drafts", "drafted", 256, drafts=n) for n in (0, 1, 2, 3))


@dataclass(frozen=True)
class ModelFile:
    """A model of the run: a random one is made once in the cache folder."""

    name: str
    dense: str = "Q8_0"
    experts: str = ""
    down: str = ""
    count: int = 512
    layers: int = 4

    def path(self, cache: Path) -> Path:
        """Its file; the name says all that it depends on."""
        if not self.experts:
            return DEMO
        kinds = "-".join((self.dense, self.experts, self.down))
        return cache / f"mid-L{self.layers}-E{self.count}-{kinds}-0.gguf"

    def make(self, cache: Path) -> Path:
        """Write the file if it is not there."""
        path = self.path(cache)
        if not path.exists():
            sizes = replace(random_gguf.MID, layers=self.layers, experts=self.count)
            random_gguf.write(path, self.dense, self.experts, down=self.down, sizes=sizes)
        return path


# Q8_0: half of the experts, so that a file in memory and an engine's own copy of it fit 24 GiB together.
MODELS = {
    m.name: m
    for m in (
        ModelFile("Q4_K", experts="Q4_K", down="IQ4_NL"),
        ModelFile("IQ3_S", experts="IQ3_S", down="IQ4_NL"),
        ModelFile("IQ3_XXS", experts="IQ3_XXS", down="IQ4_NL"),
        ModelFile("IQ2_XS", experts="IQ2_XS", down="IQ4_NL"),
        ModelFile("Q8_0", experts="Q8_0", down="Q8_0", count=256),
        ModelFile("demo"),
    )
}


class Texts:
    """Tokens for a model: the held-out text for one with a vocabulary of words, random ones for a random model."""

    def __init__(self, path: Path, words: bool) -> None:
        self._text: list[int] = []
        if words:
            tokenizer = Tokenizer.from_metadata(open_checkpoint(path).metadata)
            self._text = tokenizer.encode(HELDOUT.read_text(encoding="utf-8"), parse_special=True)
        else:
            reader = gguf.GGUFReader(path)
            self._vocab = int(reader.fields["qwen4exp.vocab_size"].contents())

    def take(self, count: int, which: int) -> list[int]:
        """`count` tokens, others for each `which`."""
        if self._text:
            start = which * 37 % len(self._text)
            return [self._text[(start + i) % len(self._text)] for i in range(count)]
        draw = random.Random(which)
        return [draw.randrange(1, self._vocab - 1) for _ in range(count)]
