"""Grammars of replies and of calls as the engine's protocol takes them."""

from collections.abc import Sequence
from typing import Any

from strata.errors import RequestError
from strata.text import Tokenizer
from strata.text.calls import Tool, ToolChoice
from strata.text.grammar import Grammar
from strata.text.tool_calls import CLOSE, OPEN
from strata.text.tool_grammar import tool_grammar


def strict_keys(
    tools: Sequence[Tool], choice: ToolChoice, template: str, opening: str, tokenizer: Tokenizer
) -> dict[str, Any]:
    """The keyword arguments of `Gen` that hold calls to the schemas of strict tools; `opening` begins the reply.

    Raises RequestError where the vocabulary has no single tokens for the marks of calls.
    """
    if choice.mode == "none" or not any(tool.strict for tool in tools):
        return {}
    call = tokenizer.id_of(OPEN)
    if call is None or tokenizer.id_of(CLOSE) is None:
        raise RequestError("This model writes the marks of calls with no single tokens: send tools without strict.")
    parallel = choice.parallel and choice.mode != "named"
    grammar = tool_grammar(tools, template, began=opening.removeprefix(OPEN), parallel=parallel)
    if opening:
        return {"grammar": grammar}
    return {"grammar": grammar, "grammar_after": call, "grammar_optional": True}


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
