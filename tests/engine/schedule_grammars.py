"""Grammars of random schedules, each with a judge that needs no parser, and a vocabulary for the model of hashes.

A judge says of a text whether it begins, or is, one that the grammar describes; so `Rules` finds the tokens that may
come next by trying every one.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from engine_fakes import EOS, TURN, VOCABULARY

from strata.engine.protocol import Gen
from strata.text.grammar import Grammar

AFTER = 49
LINES = (b"\n", b"\n\n")
"""What may stand between the token that a grammar waits for and the text, if that token has to come."""


@dataclass(frozen=True)
class Form:
    """A grammar, and its judges."""

    grammar: Grammar
    begins: Callable[[bytes], bool]
    whole: Callable[[bytes], bool]


_CHOICES = [b"abcabcabcklmnopqklm", b"abcabcabduvw", b"ab xyz", b"f"]
# Their ends are forced; of such text llguidance allows the usual tokens only, so there must be no others.


def _triples(text: bytes) -> bool:
    return len(text) <= 90 and all(byte in (b"012345" if at % 3 == 2 else b"abcdef") for at, byte in enumerate(text))


FORMS = [
    Form(Grammar("regex", "([a-f]{2}[0-5]){1,30}"), _triples,
         lambda text: _triples(text) and len(text) % 3 == 0 < len(text)),
    Form(Grammar("choice", json.dumps([one.decode() for one in _CHOICES])),
         lambda text: any(one.startswith(text) for one in _CHOICES), _CHOICES.__contains__),
    Form(Grammar("regex", "[a-j ]*"), lambda text: not text.strip(b"abcdefghij "), lambda text: True),
]  # fmt: skip


class Rules:
    """What a request with a grammar may draw next. `texts`: the bytes of every token; None where it is no text."""

    def __init__(self, request: Gen, texts: Sequence[bytes | None], ends: Collection[int]) -> None:
        (self._form,) = [form for form in FORMS if form.grammar == request.grammar]
        self._after, self._optional = request.grammar_after, request.grammar_optional
        self._texts = texts
        self._ends = list(ends)
        self._written = b""
        self._lines = 0

    def allowed(self) -> np.ndarray:
        """A mask of all tokens."""
        mask = np.zeros(len(self._texts), np.bool_)
        if self._after is not None:
            mask[:] = True
            mask[self._ends] = self._optional
            return mask
        for token, text in enumerate(self._texts):
            mask[token] = bool(text) and (self._form.begins(self._written + text) or self._is_line(text))
        mask[self._ends] = self._form.whole(self._written)
        return mask

    def _is_line(self, text: bytes) -> bool:
        return text in LINES and len(text) <= self._lines

    def advance(self, token: int) -> None:
        """A token was drawn."""
        text = self._texts[token]
        if self._after is not None:
            if token == self._after:
                self._after, self._lines = None, 0 if self._optional else 2
        elif text is not None and self._is_line(text):
            self._lines -= len(text)
        elif text is not None:
            self._written, self._lines = self._written + text, 0


def _texts() -> list[bytes | None]:
    """Letters, digits, a blank, a line break, and longer ones, so that a text can be written in several ways."""
    longer = [b"\n\n", b"ab", b"abc", b"bc", b"a0", b"f5a", b"ca", b"bcab", b"c0", b"c a", b"aa", b"  ", b"AB"]
    texts: list[bytes | None] = [bytes([byte]) for byte in b"abcdefghijklmnopqrstuvwxyz0123456789 \n"]
    texts += longer[: AFTER - len(texts)]
    texts += [None] * (VOCABULARY - len(texts))
    texts[TURN + 1 : TURN + 4] = [b"abca", b"12", b"b3d"]
    return texts


FAKE_TEXTS = _texts()


def fake_tokenizer() -> Any:
    """As much of a tokenizer as grammars need."""
    assert FAKE_TEXTS[EOS] is FAKE_TEXTS[AFTER] is FAKE_TEXTS[TURN] is None

    def encode(text: str) -> list[int]:
        tokens, rest = [], text.encode()
        while rest:
            fitting = [n for n, one in enumerate(FAKE_TEXTS) if one and rest.startswith(one)]
            tokens.append(max(fitting, key=lambda n: len(FAKE_TEXTS[n] or b"")))
            rest = rest[len(FAKE_TEXTS[tokens[-1]] or b"") :]
        return tokens

    names = [f"<{n}>" if text is None else text.decode() for n, text in enumerate(FAKE_TEXTS)]
    types = [3 if text is None else 1 for text in FAKE_TEXTS]
    return SimpleNamespace(
        vocabulary=SimpleNamespace(tokens=names, types=types), size=VOCABULARY, encode=encode,
        token_bytes=lambda n: names[n].encode() if FAKE_TEXTS[n] is None else FAKE_TEXTS[n],
    )  # fmt: skip
