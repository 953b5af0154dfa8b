"""What a model file says about its tokenizer, read from GGUF metadata or from a tokenizer directory, and checked."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

from strata.errors import WeightsError
from strata.text.huggingface import read_parts


class TokenType(IntEnum):
    """`tokenizer.ggml.token_type` of the GGUF format."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# The splits of a text into words before merging, as the models' own tokenizer files state them. `qwen35` keeps
# combining marks (\p{M}) with their letters; `qwen2` does not know them.
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
PRE_TOKENIZERS: Mapping[str, str] = {
    "qwen2": rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_BLANKS}",
    "qwen35": (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
        rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}"
    ),
}

# Tokens that end a turn or a text in the chat formats of these families, whatever the file's eos id says.
END_OF_TURN_TEXTS = ("<|im_end|>", "<|endoftext|>")


@dataclass(frozen=True)
class Vocabulary:
    """A byte-level BPE vocabulary. `tokens[id]` is the entry's text (byte alphabet, or plain for special ones)."""

    tokens: Sequence[str]
    types: Sequence[int]
    merges: Sequence[tuple[str, str]]
    pre: str
    source: str
    eos_id: int | None = None
    bos_id: int | None = None
    add_bos: bool = False
    end_ids: frozenset[int] = field(default_factory=frozenset)
    chat_template: str | None = None


def from_metadata(metadata: Mapping[str, Any], source: str = "the model file") -> Vocabulary:
    """The vocabulary in a GGUF file's metadata (keys `tokenizer.ggml.*`, `tokenizer.chat_template`).

    Raises WeightsError, naming `source` and the key, when a key is missing, of another kind, or inconsistent.
    """
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise WeightsError(
            f"{source}: tokenizer.ggml.model is {model!r}, but only byte-level BPE ('gpt2') is implemented."
        )
    tokens = _strings(metadata, "tokenizer.ggml.tokens", source)
    merges = _split_merges(_strings(metadata, "tokenizer.ggml.merges", source), source)
    types = metadata.get("tokenizer.ggml.token_type")
    types = [TokenType.NORMAL] * len(tokens) if types is None else [int(kind) for kind in types]
    ids = {
        name: _optional_id(metadata, f"tokenizer.ggml.{name}_token_id", len(tokens), source)
        for name in ("eos", "bos", "eot", "eom")
    }
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise WeightsError(f"{source}: tokenizer.chat_template must be a text, not {type(template).__name__}.")
    return _checked(
        tokens, types, merges, str(metadata.get("tokenizer.ggml.pre", "")), source,
        eos_id=ids["eos"], bos_id=ids["bos"], add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        ends=[ids["eos"], ids["eot"], ids["eom"]], template=template,
    )


def from_directory(directory: Path) -> Vocabulary:
    """The vocabulary in a tokenizer directory: `vocab.json` (token -> dense id), `merges.txt` (`a b` a line),
    `token_type.json`, and, where present, `tokenizer.json` (`pre`, `eos_token_id`, ...) and `chat_template.jinja`.

    A directory without `token_type.json` is read as checkpoints come: all from its `tokenizer.json`.
    """
    info = _json(directory / "tokenizer.json", dict) if (directory / "tokenizer.json").exists() else {}
    if not (directory / "token_type.json").exists() and "model" in info:
        tokens, types, merges = read_parts(directory / "tokenizer.json", info)
    else:
        tokens, types, merges = _parts(directory)
    template = directory / "chat_template.jinja"
    stated_in = str(directory / "tokenizer.json")
    eos, bos = (_optional_id(info, f"{name}_token_id", len(tokens), stated_in) for name in ("eos", "bos"))
    return _checked(
        tokens, types, merges, _pre_of(info), str(directory),
        eos_id=eos, bos_id=bos, add_bos=bool(info.get("add_bos_token", False)),
        ends=[eos], template=_text(template) if template.exists() else None,
    )


def _parts(directory: Path) -> tuple[list[str], list[int], list[tuple[str, str]]]:
    vocab = _json(directory / "vocab.json", dict)
    tokens: list[str | None] = [None] * len(vocab)
    for token, number in vocab.items():
        if not isinstance(number, int) or not 0 <= number < len(tokens) or tokens[number] is not None:
            raise WeightsError(
                f"{directory / 'vocab.json'}: token {token!r} has id {number!r}; the {len(tokens)} ids must be "
                f"0 to {len(tokens) - 1}, each once."
            )
        tokens[number] = token
    lines = _text(directory / "merges.txt").split("\n")
    merges = _split_merges([line for line in lines if line and not line.startswith("#version")],
                           str(directory / "merges.txt"))
    types = [int(kind) for kind in _json(directory / "token_type.json", list)]
    return [str(token) for token in tokens], types, merges


def _pre_of(info: Mapping[str, Any]) -> str:
    """The pre-tokenizer that a tokenizer.json names, or shows by the regular expression in it; `qwen35` if neither."""
    if "pre" in info or "pre_tokenizer" not in info:
        return str(info.get("pre", "qwen35"))
    return "qwen35" if r"\\p{M}" in json.dumps(info["pre_tokenizer"]) else "qwen2"


def _checked(
    tokens: Sequence[str], types: Sequence[int], merges: Sequence[tuple[str, str]], pre: str, source: str, *,
    eos_id: int | None, bos_id: int | None, add_bos: bool, ends: Iterable[int | None], template: str | None,
) -> Vocabulary:
    if pre not in PRE_TOKENIZERS:
        raise WeightsError(
            f"{source}: the pre-tokenizer is {pre!r}, but only {' and '.join(PRE_TOKENIZERS)} are implemented."
        )
    if len(types) != len(tokens):
        raise WeightsError(f"{source}: {len(tokens)} tokens but {len(types)} token types.")
    known: dict[str, int] = {}
    for number, token in enumerate(tokens):
        if known.setdefault(token, number) != number:
            raise WeightsError(f"{source}: token {token!r} has two ids, {known[token]} and {number}.")
    for left, right in merges:
        if left not in known or right not in known or left + right not in known:
            raise WeightsError(f"{source}: the merge {left!r} + {right!r} names a token outside the vocabulary.")
    if add_bos and bos_id is None:
        raise WeightsError(f"{source}: add_bos_token is set, but there is no bos_token_id.")
    by_text = {known[text] for text in END_OF_TURN_TEXTS if text in known and types[known[text]] != TokenType.NORMAL}
    return Vocabulary(
        tokens=tokens, types=types, merges=merges, pre=pre, source=source, eos_id=eos_id, bos_id=bos_id,
        add_bos=add_bos, end_ids=frozenset(number for number in ends if number is not None) | by_text,
        chat_template=template,
    )


def _strings(metadata: Mapping[str, Any], key: str, source: str) -> list[str]:
    values = metadata.get(key)
    if values is None:
        raise WeightsError(f"{source}: the metadata has no {key}.")
    values = list(values)
    if not all(isinstance(value, str) for value in values):
        raise WeightsError(f"{source}: {key} must be a list of texts.")
    return values


def _split_merges(lines: Sequence[str], source: str) -> list[tuple[str, str]]:
    merges = []
    for line in lines:
        left, blank, right = line.partition(" ")
        if not (left and blank and right) or " " in right:
            raise WeightsError(f"{source}: the merge {line!r} is not two tokens with a blank between them.")
        merges.append((left, right))
    return merges


def _optional_id(metadata: Mapping[str, Any], key: str, size: int, source: str) -> int | None:
    number = metadata.get(key)
    if number is None:
        return None
    if not isinstance(number, int) or not 0 <= number < size:
        raise WeightsError(f"{source}: {key} is {number!r}, but the vocabulary has {size} tokens.")
    return number


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise WeightsError(f"Cannot read {path}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise WeightsError(f"{path} is not UTF-8 text.") from None


def _json(path: Path, kind: type) -> Any:
    try:
        value = json.loads(_text(path))
    except ValueError:
        raise WeightsError(f"{path} is not valid JSON.") from None
    if not isinstance(value, kind):
        raise WeightsError(f"{path} must hold a JSON {'object' if kind is dict else 'list'}.")
    return value
