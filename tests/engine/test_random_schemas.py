"""Random JSON schemas: whatever is drawn under one is valid (`jsonschema` judges), and what is valid can be drawn."""

import json
import random
from typing import Any

import jsonschema
import numpy as np
import pytest

from strata.cli.defaults import demo_model
from strata.engine.constraint import Constraint, Grammars
from strata.engine.opening import open_tokenizer
from strata.text.grammar import Grammar

TOKENIZER = open_tokenizer(demo_model())
GRAMMARS = Grammars(lambda: TOKENIZER, TOKENIZER.size, TOKENIZER.end_ids)
ENDS = sorted(TOKENIZER.end_ids)
WORDS = ["a", "Zoë", "名前", "two words", 'q"uote', "back\\slash", "line\nbreak", "", "😀", "</tool_call>"]


def schema_and_value(draw: random.Random, depth: int = 0) -> tuple[dict[str, Any], Any]:
    """A schema, and a value that it allows."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const"]
    kind = draw.choice(kinds + ["object", "array", "anyOf"] * (depth < 3))
    match kind:
        case "string":
            text = draw.choice(WORDS)
            limit = {"maxLength": len(text) + draw.randrange(5)} if draw.random() < 0.5 else {}
            return {"type": "string", **limit}, text
        case "integer":
            low = draw.randrange(-50, 50)
            return {"type": "integer", "minimum": low, "maximum": low + 20}, low + draw.randrange(21)
        case "number":
            return {"type": "number"}, draw.choice([0, -1.5, 2.25e-3, 7, 1e20])
        case "boolean":
            return {"type": "boolean"}, draw.random() < 0.5
        case "null":
            return {"type": "null"}, None
        case "enum" | "const":
            values = draw.sample([*WORDS, 1, None, True, 2.5], 3)
            return ({"enum": values}, draw.choice(values)) if kind == "enum" else ({"const": values[0]}, values[0])
        case "array":
            inner, first = schema_and_value(draw, depth + 1)
            count = draw.randrange(3)
            return {"type": "array", "items": inner, "maxItems": max(count, 2)}, [first] * count
        case "anyOf":
            options = [schema_and_value(draw, depth + 1) for _ in range(2)]
            return {"anyOf": [inner for inner, _ in options]}, draw.choice(options)[1]
    names = draw.sample(WORDS[:6], draw.randrange(4))
    inner_of = {name: schema_and_value(draw, depth + 1) for name in names}
    required = [name for name in names if draw.random() < 0.7]
    value = {name: one for name, (_, one) in inner_of.items() if name in required or draw.random() < 0.5}
    properties = {name: inner for name, (inner, _) in inner_of.items()}
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}, value


def begin(schema: dict[str, Any]) -> Constraint:
    return GRAMMARS.constraint(Grammar("json_schema", json.dumps(schema)))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_drawn_is_valid(seed: int) -> None:
    draw = random.Random(seed)
    schema, _ = schema_and_value(draw)
    constraint, drawn = begin(schema), []
    for step in range(600):
        allowed = np.flatnonzero(constraint.allowed())
        ending = [token for token in ENDS if token in allowed]
        if ending and (step > 40 or draw.random() < 0.3):
            break
        # After a while what closes is preferred, or a text without a limit never ends.
        closing = [token for token in allowed if TOKENIZER.token_bytes(token) in (b'"', b"}", b"]", b",", b":", b"0")]
        token = int(draw.choice(closing if step > 40 and closing else list(allowed)))
        if token in ENDS:
            break
        constraint.advance(token)
        drawn.append(token)
    else:
        pytest.fail(f"no end of {TOKENIZER.decode(drawn)!r}")
    text = b"".join(TOKENIZER.token_bytes(token) for token in drawn).decode()
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


@pytest.mark.parametrize("seed", range(40))
def test_what_is_valid_can_be_drawn(seed: int) -> None:
    schema, value = schema_and_value(random.Random(seed))
    jsonschema.Draft202012Validator(schema).validate(value)
    for options in ({"ensure_ascii": False}, {"indent": 2, "ensure_ascii": False}):
        constraint = begin(schema)
        text = json.dumps(value, **options)
        # Marks are texts here: the tokens that stand for them are none.
        pieces = [TOKENIZER.encode(part) for part in text.replace("</tool_call>", "</tool\0_call>").split("\0")]
        for token in (token for piece in pieces for token in piece):
            assert constraint.allowed()[token], (text, TOKENIZER.token_bytes(token))
            constraint.advance(token)
        assert constraint.allowed()[ENDS].any()
