"""What the text of a call's argument means: a text, or the JSON value that its tool's schema allows."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from strata.text.calls import Tool

_PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_DEEPEST = 16


class ArgumentTypes:
    """The JSON types that tools' schemas (https://json-schema.org) allow for their arguments."""

    def __init__(self, tools: tuple[Tool, ...]) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def of(self, tool: str, argument: str) -> frozenset[str]:
        """Names of JSON types, "integer" among them; none: nothing is known of this argument."""
        root = self._tools[tool].parameters if tool in self._tools else {}
        properties = root.get("properties")
        schema = properties.get(argument) if isinstance(properties, Mapping) else None
        return types_of(schema, root)


def types_of(schema: Any, root: Mapping[str, Any]) -> frozenset[str]:
    """Names of the JSON types that a schema within `root` allows; none: nothing is known."""
    return frozenset(_types(schema, root, 0))


def schema_of(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema within `root`, behind its references."""
    for _ in range(_DEEPEST):
        if not (isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str)):
            break
        schema = _resolve(schema["$ref"], root)
    return schema if isinstance(schema, Mapping) else {}


def is_text(types: frozenset[str]) -> bool:
    """Whether an argument is a text whatever it looks like."""
    return types == {"string"}


def value_text(text: str, types: frozenset[str]) -> str:
    """The JSON text of an argument that the model wrote as `text`."""
    written = text.strip()
    kind = _kind(written)
    if kind is None and types and "string" not in types and written in _PYTHON_WORDS:
        written = _PYTHON_WORDS[written]
        kind = _kind(written)
    if kind is None or ("string" in types and kind not in types - {"string"}):
        return json.dumps(text, ensure_ascii=False)
    return written


def _kind(text: str) -> str | None:
    """The JSON type of a text that is valid JSON; None for any other."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return _kind_of(value)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    kinds = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "object")


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> set[str]:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return set()
    stated = schema.get("type")
    found = {stated} if isinstance(stated, str) else set(map(str, stated)) if isinstance(stated, list) else set()
    if not found:
        values = schema["enum"] if isinstance(schema.get("enum"), list) else []
        found = {_kind_of(value) for value in [*values, *([schema["const"]] if "const" in schema else [])]}
    if not found:
        for key in ("anyOf", "oneOf", "allOf"):
            options = schema.get(key)
            for option in options if isinstance(options, list) else []:
                found |= _types(option, root, depth + 1)
    if not found and isinstance(schema.get("$ref"), str):
        found = _types(_resolve(schema["$ref"], root), root, depth + 1)
    return found | {"integer"} if "number" in found else found


def _resolve(reference: str, root: Mapping[str, Any]) -> Any:
    """What a reference inside of the schema itself (`#/$defs/Name`) names."""
    at: Any = root
    for word in reference.removeprefix("#/").split("/") if reference.startswith("#/") else ["#"]:
        at = at.get(word.replace("~1", "/").replace("~0", "~")) if isinstance(at, Mapping) else None
    return at
