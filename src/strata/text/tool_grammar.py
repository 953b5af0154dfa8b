"""Strict tools: a grammar that holds calls, in the form that a chat template teaches, to the schemas of their tools.

The grammar is llguidance's Lark form (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md). It begins
behind the `<tool_call>` of the reply's first call; text before a call is free, and nothing follows the last.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from strata.errors import RequestError
from strata.text.argument_values import is_text, schema_of, types_of
from strata.text.calls import Tool
from strata.text.grammar import Grammar
from strata.text.tool_calls import CLOSE, FUNCTION, OPEN, PARAMETER, is_xml

_BLANKS = r"(?: |\n[ ]{0,40})"
"""Between the parts of a JSON value: bounded, or a model that has lost its thread writes blanks for ever."""
_ENDS = "\n</parameter>\n"
_FREE = "text"
_READ_AS_END = r"</parameter>[\s\x1c-\x1f]*(?:<parameter=|</function>)"
"""What ends a value for the reader of calls, so that no value may hold it."""
_NAME = re.compile(r"[^\s<>](?:[^\n<>]{0,254}[^\s<>])?")
_WHOLE_LIMITS = ("$ref", "anyOf", "oneOf", "allOf", "not", "if", "enum", "const", "patternProperties", "propertyNames",
                 "minProperties", "maxProperties", "dependentRequired", "dependentSchemas")  # fmt: skip
_TEXT_LIMITS = ("pattern", "format", "minLength", "maxLength")


def tool_grammar(tools: Sequence[Tool], template: str, *, began: str = "", parallel: bool = True) -> Grammar:
    """What follows the first `<tool_call>` of a reply, less `began`, which stands there already.

    The arguments of strict tools match their schemas, those of others are any. Raises RequestError for a schema of a
    strict tool that this form cannot hold an argument to.
    """
    form = _Xml() if is_xml(template) else _Json()
    heads = [form.head(tool.name) for tool in tools]
    bodies = [form.body(index, tool) for index, tool in enumerate(tools)]
    both = list(zip(heads, bodies, strict=True))
    first = [f"{_literal(head[len(began) :])} {body}" for head, body in both if head.startswith(began)]
    calls = [f"{_literal(head)} {body}" for head, body in both]
    rules = [
        f"start: first{f' (BREAK {OPEN} call)*' if parallel else ''}",
        r"BREAK: /\n?/",
        f"first: ({' | '.join(first)}) {CLOSE}",
        f"call: ({' | '.join(calls)}) {CLOSE}",
        *form.rules,
    ]
    return Grammar("lark", "\n".join(rules))


class _Json:
    """`{"name": ..., "arguments": {...}}`."""

    def __init__(self) -> None:
        self.rules: list[str] = []

    def head(self, name: str) -> str:
        return f'\n{{"name": {json.dumps(name)}, "arguments":'

    def body(self, index: int, tool: Tool) -> str:
        schema = dict(tool.parameters) if tool.strict else {}
        self.rules.append(f"a{index}: {_json({'type': 'object', **schema})}")
        return f'" "? a{index} "}}\\n"'


class _Xml:
    """`<function=NAME>` and parameters one by one, in the order of the schema."""

    def __init__(self) -> None:
        misread = _READ_AS_END.replace("/", r"\/")
        self.rules = [
            f"{_FREE}[suffix={_literal(_ENDS)}]: VALUE",
            f"VALUE: /(?s:.*)/ & ~/(?s:.*){misread}(?s:.*)/",
        ]
        self._any = f'({_literal(PARAMETER)} /{_NAME.pattern}/ ">\\n" {_FREE})*'

    def head(self, name: str) -> str:
        return f"\n{FUNCTION}{name}>\n"

    def body(self, index: int, tool: Tool) -> str:
        self.rules.append(f"f{index}: {self._parameters(index, tool) if tool.strict else self._any}")
        return f'f{index} "</function>\\n"'

    def _parameters(self, index: int, tool: Tool) -> str:
        properties, required = _arguments(tool)
        names = []
        for at, (name, given) in enumerate(properties.items()):
            rule, mark = f"p{index}_{at}", _literal(f"{PARAMETER}{name}>\n")
            self.rules.append(f"{rule}: {mark} {self._value(rule, tool, name, given)}")
            names.append(rule if name in required else f"{rule}?")
        return " ".join(names) or '""'

    def _value(self, rule: str, tool: Tool, name: str, given: Any) -> str:
        """A parameter's value and the mark that ends it."""
        root = tool.parameters
        if not is_text(types_of(given, root)):
            shared = {key: root[key] for key in ("$defs", "definitions") if key in root}
            schema = given if isinstance(given, Mapping) else {}
            self.rules.append(f"v{rule}: {_json({**shared, **schema})}")
            return f"v{rule} {_literal(_ENDS)}"
        schema = schema_of(given, root)
        if "enum" in schema or "const" in schema:
            words = _words(schema)
            if not words or any(re.search(_READ_AS_END, word) for word in words):
                raise _refused(tool, f"the texts that {name!r} may be cannot be written")
            return f"({' | '.join(_literal(f'{word}{_ENDS}') for word in words)})"
        limits = [key for key in _TEXT_LIMITS if key in schema]
        if limits:
            raise _refused(tool, f"{limits[0]} of the text {name!r} cannot be enforced")
        return _FREE


def _arguments(tool: Tool) -> tuple[Mapping[str, Any], Sequence[str]]:
    """The properties of a tool's schema, and which are required. Raises RequestError for what cannot be enforced."""
    schema = tool.parameters
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("type", "object") != "object" or not isinstance(properties, Mapping):
        raise _refused(tool, "its parameters are no object with properties")
    if not isinstance(required, list) or any(name not in [*properties] for name in required):
        raise _refused(tool, "required is no list of names that are among its properties")
    for key in _WHOLE_LIMITS:
        if key in schema:
            raise _refused(tool, f"{key} beside its properties cannot be enforced")
    for name in properties:
        if not _NAME.fullmatch(name):
            shown = repr(name) if len(name) <= 60 else f"{name[:56]!r}..."
            raise _refused(tool, f"the argument name {shown} cannot be written in a call of this model")
    return properties, required


def _words(schema: Mapping[str, Any]) -> list[str]:
    """The texts that a schema names one by one."""
    given = schema.get("enum") if "enum" in schema else [schema["const"]]
    return [word for word in given if isinstance(word, str)] if isinstance(given, list) else []


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps({'x-guidance': {'whitespace_pattern': _BLANKS}, **schema}, ensure_ascii=False)}"


def _literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _refused(tool: Tool, reason: str) -> RequestError:
    return RequestError(f"The tool {tool.name!r} cannot be strict: {reason}. Leave out strict, or that.")
