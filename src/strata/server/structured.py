"""Structured output as clients ask for it: OpenAI's `response_format`, vLLM's `guided_*` and `structured_outputs`,
llama.cpp's `grammar` and `json_schema`."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from strata.server.fields import Node
from strata.server.problem import FieldError
from strata.text.grammar import Grammar

_GUIDED = ("json", "regex", "choice", "grammar")


def grammar_of(fields: Mapping[str, Any]) -> Grammar | None:
    """The grammar that the fields of a request ask for. Raises FieldError for a wrong one, or for two of them."""
    found: list[tuple[str, Grammar]] = []
    for name, value in fields.items():
        if value is None or value == "":
            continue
        grammar = None
        if name == "response_format":
            grammar = _response_format(value)
        elif name == "json_schema":
            grammar = _schema(name, value)
        elif name == "grammar":
            grammar = _text(name, "gbnf", value)
        elif name.startswith("guided_") and name.removeprefix("guided_") in _GUIDED:
            grammar = _guided(name, name.removeprefix("guided_"), value)
        elif name == "structured_outputs":
            found += _structured(value)
        if grammar is not None:
            found.append((name, grammar))
    if len(found) > 1:
        names = ", ".join(name for name, _ in found)
        raise FieldError(f"One reply has one grammar, but {names} were given; send one of them.", found[1][0])
    return found[0][1] if found else None


def schema_of(form: Node) -> Grammar:
    """The grammar of a format's field `schema`, as the Anthropic and Responses APIs have it. Raises FieldError."""
    return Grammar("json_schema", msgspec.json.encode(form.json("schema")).decode())


def _response_format(value: Any) -> Grammar | None:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        schema = value.get("schema")  # llama.cpp's form of a schema
        return Grammar("json_object") if schema is None else _schema("response_format.schema", schema)
    if kind == "json_schema":
        inner = value.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, dict) else value.get("schema")
        if schema is None:
            raise FieldError("response_format.json_schema.schema is missing.", "response_format")
        return _schema("response_format.json_schema.schema", schema)
    raise FieldError("response_format.type must be text, json_object or json_schema.", "response_format")


def _structured(value: Any) -> list[tuple[str, Grammar]]:
    if not isinstance(value, dict):
        raise FieldError("structured_outputs must be an object.", "structured_outputs")
    found = []
    for key, inner in value.items():
        name = f"structured_outputs.{key}"
        if inner is None or inner is False:
            continue
        if key == "json_object" and inner is True:
            found.append((name, Grammar("json_object")))
        elif key in _GUIDED:
            found.append((name, _guided(name, key, inner)))
        else:
            raise FieldError(f"{name} is not implemented by this server; leave it out.", "structured_outputs")
    return found


def _guided(name: str, kind: str, value: Any) -> Grammar:
    if kind == "json":
        return _schema(name, value)
    if kind == "regex":
        return _text(name, "regex", value)
    if kind == "choice":
        if not (isinstance(value, list) and value and all(isinstance(one, str) for one in value)):
            raise FieldError(f"{name} must be a list of one text or more.", name.split(".")[0])
        return Grammar("choice", json.dumps(value, ensure_ascii=False))
    return _text(name, "lark" if isinstance(value, str) and "start:" in value else "gbnf", value)


def _schema(name: str, value: Any) -> Grammar:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise FieldError(f"{name} is not JSON.", name.split(".")[0]) from None
    if not isinstance(value, dict | bool):
        raise FieldError(f"{name} must be a JSON schema: an object, true or false.", name.split(".")[0])
    text = json.dumps(value, ensure_ascii=False)
    if re.search(r"[\ud800-\udfff]", text):
        raise FieldError(f"{name} holds a lone surrogate (U+D800 to U+DFFF): not a character.", name.split(".")[0])
    return Grammar("json_schema", text)


def _text(name: str, kind: Any, value: Any) -> Grammar:
    if not isinstance(value, str):
        raise FieldError(f"{name} must be a text.", name.split(".")[0])
    return Grammar(kind, value)
