"""A grammar as the engine's protocol takes it."""

from typing import Any

from strata.errors import RequestError
from strata.text import Tokenizer
from strata.text.grammar import Grammar


def grammar_keys(grammar: Grammar | None, tokenizer: Tokenizer, *, thinking: bool) -> dict[str, Any]:
    """The keyword arguments of the protocol's `Gen`. `thinking`: the reply begins inside of its thinking.

    Raises RequestError where the vocabulary has no token that ends the thinking.
    """
    if grammar is None:
        return {}
    if not thinking:
        return {"grammar": grammar}
    after = tokenizer.id_of("</think>")
    if after is None:
        raise RequestError("This model ends its thinking with no single token: switch thinking off for a grammar.")
    return {"grammar": grammar, "grammar_after": after}
