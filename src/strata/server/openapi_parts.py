"""Small pieces of JSON schemas (https://json-schema.org/draft/2020-12), for the description of the API."""

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]


def ref(name: str) -> Schema:
    """One of the document's own schemas."""
    return {"$ref": f"#/components/schemas/{name}"}


def typed(value: Any) -> Schema:
    """A schema, or a type as JSON schema names it ("integer?": or null)."""
    if not isinstance(value, str):
        return dict(value)
    return {"type": [value[:-1], "null"]} if value.endswith("?") else {"type": value}


def shape(required: Mapping[str, Any], **optional: Any) -> Schema:
    """An object whose values are types or schemas. It may hold more than is named."""
    properties = {name: typed(value) for name, value in {**required, **optional}.items()}
    return {"type": "object", "required": list(required), "properties": properties}


def array(items: Any, least: int = 0) -> Schema:
    """A list."""
    return {"type": "array", "items": typed(items), **({"minItems": least} if least else {})}


def const(value: str) -> Schema:
    """This one text."""
    return {"type": "string", "const": value}


def words(*values: str) -> Schema:
    """One of these texts."""
    return {"type": "string", "enum": list(values)}


def either(*kinds: Any) -> Schema:
    """Any of these."""
    return {"anyOf": [typed(kind) for kind in kinds]}


def limited(kind: str, low: float | None, high: float | None, about: str = "") -> Schema:
    """A number in a range, or null."""
    ends = {"minimum": low, "maximum": high}
    given = {name: end for name, end in ends.items() if end is not None}
    return {"type": [kind, "null"], **given, **({"description": about} if about else {})}
