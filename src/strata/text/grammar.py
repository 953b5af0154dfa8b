"""What a reply has to match, as every API says it."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["json_object", "json_schema", "regex", "choice", "gbnf", "lark"]


@dataclass(frozen=True, slots=True)
class Grammar:
    """`text` is what its `kind` takes: a JSON schema, a regular expression, a JSON list of choices, a grammar."""

    kind: Kind
    text: str = ""
