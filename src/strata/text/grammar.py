"""What a reply has to look like, as a grammar that the engine enforces token by token."""

from dataclasses import dataclass
from typing import Literal, get_args

Kind = Literal["json_object", "json_schema", "regex", "choice", "gbnf", "lark"]
KINDS: tuple[str, ...] = get_args(Kind)
LONGEST = 256 << 10
"""Bytes of a grammar's text."""


@dataclass(frozen=True, slots=True)
class Grammar:
    """`kind` says how `text` is read.

    json_object: any JSON object (`text` is empty). json_schema: a JSON schema, as JSON. regex: a regular expression
    that the whole reply matches. choice: a JSON list of texts, of which the reply is one. gbnf: llama.cpp's grammar
    form. lark: the Lark form of llguidance, where `%json { ... }` embeds a schema and `<name>` is a special token.
    """

    kind: Kind
    text: str = ""
