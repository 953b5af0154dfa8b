"""`strata tokenizer`: its files, read by independent readers, give the ids that our own tokenizer gives."""

import json
from pathlib import Path

import pytest
import regex
import tokenizers
from tokenizers import models, pre_tokenizers

from strata.cli.defaults import demo_model
from strata.cli.main import main
from strata.cli.model import read_card
from strata.text import Tokenizer

TEXTS = [
    "", "Hello, world!  It's I'M we'LL\n\n x\t\ty \r\n", "1234567890", "Größe cafe\u0301 e\u0301\u0302x नमस्ते 日本語。",
    "😀👩\u200d👩\u200d👧🇩🇪 \u00a0\u3000", "def f(x):\n        return x  \n", "<|im_start|>user\nhi<|im_end|>\n",
    "<|im_start|>assistant\n<think>\n\n</think>\n\nyes<|endoftext|>", "<think<|im_start|", "\x00\x7f -- == ?!\n",
]  # fmt: skip
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("words") / "deep" / "demo"
    assert main(["tokenizer", str(demo_model()), str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def ours() -> Tokenizer:
    return read_card(demo_model()).tokenizer


class PlainReader:
    """Byte-level BPE written out: the lowest merge of a word first, special tokens by their text."""

    def __init__(self, directory: Path) -> None:
        self.vocab = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
        kinds = json.loads((directory / "token_type.json").read_text())
        lines = (directory / "merges.txt").read_text(encoding="utf-8").split("\n")
        pairs = [tuple(line.split()) for line in lines]
        assert all(len(pair) == 2 for pair in pairs)
        assert sorted(self.vocab.values()) == list(range(len(kinds)))
        self.rank = {pair: number for number, pair in enumerate(pairs)}
        special = [token for token, number in self.vocab.items() if kinds[number] in (3, 4)]
        self.special = regex.compile("|".join(regex.escape(t) for t in sorted(special, key=len, reverse=True)))
        shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
        hidden = [byte for byte in range(256) if byte not in shown]
        self.letter = {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}

    def encode(self, text: str) -> list[int]:
        ids, end = [], 0
        for match in self.special.finditer(text):
            ids += [*self._plain(text[end : match.start()]), self.vocab[match.group()]]
            end = match.end()
        return ids + self._plain(text[end:])

    def _plain(self, text: str) -> list[int]:
        ids = []
        for word in regex.findall(SPLIT, text):
            parts = [self.letter[byte] for byte in word.encode()]
            while len(parts) > 1:
                at = min(range(len(parts) - 1), key=lambda i: self.rank.get((parts[i], parts[i + 1]), 10**9))
                if (parts[at], parts[at + 1]) not in self.rank:
                    break
                parts[at : at + 2] = [parts[at] + parts[at + 1]]
            ids += [self.vocab[part] for part in parts]
        return ids


def test_plain_reader_gives_the_same_ids(directory: Path, ours: Tokenizer) -> None:
    reader = PlainReader(directory)
    for text in TEXTS:
        assert reader.encode(text) == ours.encode(text, parse_special=True), text


def test_tokenizers_library_gives_the_same_ids(directory: Path, ours: Tokenizer) -> None:
    library = tokenizers.Tokenizer(models.BPE.from_file(str(directory / "vocab.json"), str(directory / "merges.txt")))
    library.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(SPLIT), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    for text in TEXTS:
        if "<" not in text:
            assert library.encode(text).ids == ours.encode(text), text


def test_directory_is_the_same_tokenizer(directory: Path, ours: Tokenizer) -> None:
    read = Tokenizer.from_directory(directory).vocabulary
    for name in ("tokens", "types", "merges", "pre", "eos_id", "bos_id", "add_bos", "end_ids", "chat_template"):
        expected, got = getattr(ours.vocabulary, name), getattr(read, name)
        assert (list(got) if name in ("tokens", "types", "merges") else got) == (
            list(expected) if name in ("tokens", "types", "merges") else expected
        ), name
    merges = (directory / "merges.txt").read_bytes()
    assert not merges.startswith(b"#")
    assert not merges.endswith(b"\n")


def test_other_files_are_not_replaced(directory: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["tokenizer", str(demo_model()), str(directory)]) == 0
    (tmp_path / "tokenizer.json").write_text('{"model": {}}')
    capsys.readouterr()
    assert main(["tokenizer", str(demo_model()), str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said == f"strata: {tmp_path / 'tokenizer.json'} exists and is another tokenizer's: name another directory.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    assert (tmp_path / "tokenizer.json").read_text() == '{"model": {}}'
    (tmp_path / "file").write_text("")
    assert main(["tokenizer", str(demo_model()), str(tmp_path / "file")]) == 2
    assert "Cannot write" in capsys.readouterr().err
    assert main(["tokenizer", "/nowhere.gguf", str(tmp_path / "x")]) == 1
    assert not (tmp_path / "x").exists()
