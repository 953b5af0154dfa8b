"""What a reply has to look like, as a grammar that the engine enforces token by token."""

from dataclasses import dataclass

KINDS = ("json_object", "json_schema", "regex", "choice", "gbnf", "lark")


@dataclass(frozen=True, slots=True)
class Grammar:
    """`kind` says how `text` is read.

    json_object: any JSON object (`text` is empty). json_schema: a JSON schema, as JSON. regex: a regular expression
    that the whole reply matches. choice: a JSON list of texts, of which the reply is one. gbnf: llama.cpp's grammar
    form. lark: the Lark form of llguidance, where `%json { ... }` embeds a schema and `<name>` is a special token.
    """

    kind: str
    text: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"the kind of a grammar is one of {', '.join(KINDS)}, not {self.kind!r}")
