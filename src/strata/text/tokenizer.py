"""Text to token ids and back: byte-level BPE on the `tokenizers` library, with special tokens taken apart here.

A text is tokenized as it is, without Unicode normalisation, so that decoding gives back every byte.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers

from strata.errors import RequestError, WeightsError
from strata.text import vocabulary
from strata.text.bytelevel import ALPHABET, to_bytes
from strata.text.vocabulary import PRE_TOKENIZERS, TokenType, Vocabulary

# These mark parts of a reply; whatever type a file gives them, the reader of the reply has to see them.
STRUCTURE_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")

LONG_TEXT = 4096
"""Characters from which on other threads go on while a text is tokenized; the library allows that for batches only."""


class Tokenizer:
    """The tokenizer of one model.

    Control tokens (`<|im_start|>`) are recognised in a text only with `parse_special`, user-defined ones
    (`<think>`) always; where several could start at one place the longest is taken.
    """

    def __init__(self, vocab: Vocabulary) -> None:
        self.vocabulary = vocab
        self._ids = {token: number for number, token in enumerate(vocab.tokens)}
        try:
            model = models.BPE(vocab=self._ids, merges=list(vocab.merges))
        except Exception as error:  # the library raises bare Exceptions
            raise WeightsError(f"{vocab.source}: the tokenizer cannot be built: {error}.") from None
        self._bpe = tokenizers.Tokenizer(model)
        self._bpe.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(tokenizers.Regex(PRE_TOKENIZERS[vocab.pre]), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        typed = list(zip(vocab.tokens, vocab.types, strict=True))
        always = [token for token, kind in typed if kind == TokenType.USER_DEFINED]
        asked = [token for token, kind in typed if kind in (TokenType.CONTROL, TokenType.UNKNOWN)]
        self._always = _any_of(always)
        self._with_special = _any_of(always + asked)
        self._asked = _any_of(asked)
        nonce = secrets.token_hex(8)
        self._quote = f"\ue000{nonce}-{{}}\ue001"
        self._quoted = re.compile(f"\ue000{nonce}-([0-9]+)\ue001")
        self._missing = frozenset(byte for byte, character in enumerate(ALPHABET) if character not in self._ids)
        marks = {self._ids[text] for text in STRUCTURE_MARKS if text in self._ids}
        self._silent = vocab.end_ids | {
            number
            for number, kind in enumerate(vocab.types)
            if kind in (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.UNUSED) and number not in marks
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], source: str = "the model file") -> "Tokenizer":
        """From the metadata of a GGUF file. Raises WeightsError."""
        return cls(vocabulary.from_metadata(metadata, source))

    @classmethod
    def from_directory(cls, directory: str | Path) -> "Tokenizer":
        """From a directory of vocab.json, merges.txt and token_type.json. Raises WeightsError."""
        return cls(vocabulary.from_directory(Path(directory)))

    @property
    def size(self) -> int:
        """Number of token ids."""
        return len(self.vocabulary.tokens)

    @property
    def end_ids(self) -> frozenset[int]:
        """Tokens that end a reply."""
        return self.vocabulary.end_ids

    def id_of(self, token: str) -> int | None:
        """The id of a vocabulary entry, by its exact text."""
        return self._ids.get(token)

    def is_silent(self, token_id: int) -> bool:
        """Whether a reader sees nothing of a token: control tokens and ends of turn, but not `<think>` and its kin."""
        return token_id in self._silent

    def encode(self, text: str, *, parse_special: bool = False, add_special: bool = False) -> list[int]:
        """Token ids of a text. `add_special` puts the bos token first where the model wants one.

        Raises RequestError when the text holds a lone surrogate, or a byte for which the vocabulary has no token.
        """
        ids = [self.vocabulary.bos_id] if add_special and self.vocabulary.add_bos else []
        result: list[int] = [number for number in ids if number is not None]
        literals = self._with_special if parse_special else self._always
        if literals is None:
            result += self._encode_plain(text)
            return result
        end = 0
        for match in literals.finditer(text):
            result += self._encode_plain(text[end : match.start()])
            result.append(self._ids[match.group()])
            end = match.end()
        result += self._encode_plain(text[end:])
        return result

    def quote(self, text: str) -> str:
        """`text` with its control tokens marked as mere text: `encode` then never reads them as control tokens.

        What users write goes through this before a chat template puts it between real control tokens, or a message
        could end its own turn and speak in another role. The marks cannot be guessed.
        """
        if self._asked is None:
            return text
        return self._asked.sub(lambda match: self._quote.format(self._ids[match.group()]), text)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for (a special token: its own text)."""
        token = self.vocabulary.tokens[token_id]
        if self.vocabulary.types[token_id] in (TokenType.NORMAL, TokenType.UNUSED):
            return to_bytes(token)
        return token.encode("utf-8", "surrogatepass")

    def decode(self, ids: Iterable[int], *, special: bool = True) -> str:
        """The text of token ids; bytes that are no UTF-8 become U+FFFD. Without `special`, no control tokens."""
        kept = (number for number in ids if special or not self.is_silent(number))
        return b"".join(self.token_bytes(number) for number in kept).decode("utf-8", "replace")

    def _encode_plain(self, text: str) -> list[int]:
        if not text:
            return []
        text = self._quoted.sub(lambda match: self.vocabulary.tokens[int(match.group(1))], text)
        try:
            data = text.encode("utf-8") if self._missing else b""
            ids = self._pieces(text)
        except (UnicodeEncodeError, TypeError):
            raise RequestError("The text holds a lone surrogate (U+D800 to U+DFFF): not a character.") from None
        lost = self._missing.intersection(data)
        if lost:
            raise RequestError(
                f"The text holds the byte 0x{min(lost):02x}, for which this model's vocabulary has no token."
            )
        return ids


    def _pieces(self, text: str) -> list[int]:
        """Raises RequestError for a run of blanks that is longer than the library's regular expressions can follow."""
        try:
            if len(text) < LONG_TEXT:
                short: list[int] = self._bpe.encode(text, add_special_tokens=False).ids
                return short
            long: list[int] = self._bpe.encode_batch_fast([text], add_special_tokens=False)[0].ids
            return long
        except BaseException as error:  # a panic of the library is no Exception
            if type(error).__name__ != "PanicException":
                raise
            raise RequestError("The text cannot be tokenized: it holds too many blanks in a row.") from None


def _any_of(literals: list[str]) -> re.Pattern[str] | None:
    longest_first = sorted((literal for literal in literals if literal), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
