"""The demo model's tokenizer: byte-level BPE in the style of Qwen3.5, with the chat format's tokens.

`python -m training.tokenizer --corpus DIR --out FILE` trains it on a fixed sample of the corpus and of generated
conversations. llama.cpp's name for the splitting rule below is `qwen35`.
"""

from __future__ import annotations

import argparse
import lzma
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

PRE = "qwen35"
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|"
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
SPECIAL = [*CONTROL, *MARKERS]
SAMPLE_CHARACTERS = {
    "books": 9e6,
    "dialogue": 4e6,
    "wiki": 3e6,
    "words": 2e6,
    "docs": 2e6,
    "code": 2.5e6,
    "computing": 1e6,
}


def train(texts: Iterator[str], size: int) -> Tokenizer:
    """A tokenizer of `size` tokens in total; the special ones come last."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in MARKERS])
    return tokenizer


def sample(corpus: Path, generated: int) -> Iterator[str]:
    from .data.generate import draw, load_sources

    for name, characters in SAMPLE_CHARACTERS.items():
        with lzma.open(corpus / f"{name}.txt.xz", "rt", encoding="utf-8") as file:
            text = file.read(int(characters))
        for marker in SPECIAL:
            text = text.replace(marker, "\n")
        yield from (text[i : i + 100_000] for i in range(0, len(text), 100_000))
    for text in draw(load_sources(corpus, books_mb=1), seed=0, count=generated):
        for marker in SPECIAL:
            text = text.replace(marker, "\n")
        yield text[:2000]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the demo model's tokenizer.")
    parser.add_argument("--corpus", type=Path, required=True, help="folder of NAME.txt.xz files")
    parser.add_argument("--out", type=Path, required=True, help="tokenizer.json to write")
    parser.add_argument("--size", type=int, default=16384, help="tokens in total (default %(default)s)")
    parser.add_argument("--generated", type=int, default=15000, help="generated conversations to include")
    args = parser.parse_args()
    tokenizer = train(sample(args.corpus, args.generated), args.size)
    tokenizer.save(str(args.out))
    print(f"{args.out}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
