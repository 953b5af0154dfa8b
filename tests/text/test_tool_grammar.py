"""Grammars of strict tools: what they accept the parser reads as calls of the schema, and `jsonschema` agrees."""

import json
from typing import Any

import jsonschema
import pytest

from strata.cli.defaults import demo_model
from strata.engine.constraint import Grammars
from strata.engine.opening import open_tokenizer
from strata.errors import RequestError
from strata.text.calls import CallArguments, CallClosed, CallOpened, Tool
from strata.text.tool_calls import OPEN, ToolCallParser, opening
from strata.text.tool_grammar import tool_grammar

TOKENIZER = open_tokenizer(demo_model())
GRAMMARS = Grammars(lambda: TOKENIZER, TOKENIZER.size, TOKENIZER.end_ids)
XML, JSON = "<tool_call><function=", '<tool_call>{"name":'
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"}, "mode": {"$ref": "#/$defs/mode"}, "count": {"type": "integer", "minimum": 1},
        "flags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2},
    },
    "required": ["path", "count"], "additionalProperties": False,
    "$defs": {"mode": {"type": "string", "enum": ["r", "w+"]}},
}  # fmt: skip
STRICT = Tool("edit", "", SCHEMA, strict=True)
FREE = Tool("look")


def xml(name: str, **arguments: str) -> str:
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"\n<function={name}>\n{parameters}</function>\n</tool_call>"


def accepted(text: str, template: str = XML, tools: tuple[Tool, ...] = (STRICT, FREE), **options: Any) -> bool:
    """Whether the reply that is `text` after its first `<tool_call>` can be drawn, and end there."""
    constraint = GRAMMARS.constraint(tool_grammar(tools, template, **options))
    for token in TOKENIZER.encode(text, parse_special=True):
        if not constraint.allowed()[token]:
            return False
        constraint.advance(token)
    return bool(constraint.allowed()[list(TOKENIZER.end_ids)].any())


def calls_of(text: str) -> list[tuple[str, Any]]:
    parser = ToolCallParser([STRICT, FREE])
    events = [*parser.push(OPEN + text), *parser.finish()]
    names = [event.name for event in events if isinstance(event, CallOpened)]
    assert len(names) == sum(isinstance(event, CallClosed) for event in events)
    return [(name, json.loads("".join(event.text for event in events
                                      if isinstance(event, CallArguments) and event.index == index)))
            for index, name in enumerate(names)]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "fits"),
    [
        ({"path": "a\nb", "count": "3"}, True), ({"path": "", "mode": "w+", "count": "12"}, True),
        ({"path": "x", "count": "1", "flags": "[true, false]"}, True),
        ({"path": "</parameter> <p>", "count": "1"}, True),
        ({"path": "x", "mode": "a", "count": "1"}, False), ({"path": "x"}, False), ({"count": "1"}, False),
        ({"path": "x", "count": "0"}, False), ({"path": "x", "count": "1.5"}, False),
        ({"path": "x", "count": "1", "flags": "[1]"}, False), ({"path": "x", "count": "1", "more": "1"}, False),
        ({"count": "1", "path": "x"}, False),
    ],
)  # fmt: skip
def test_strict_calls_have_the_arguments_of_their_schema(arguments: dict[str, str], fits: bool) -> None:
    text = xml("edit", **arguments)
    assert accepted(text) == fits
    ((name, found),) = calls_of(text)
    assert name == "edit"
    in_order = list(arguments) == [key for key in SCHEMA["properties"] if key in arguments]
    assert jsonschema.Draft202012Validator(SCHEMA).is_valid(found) == fits or not in_order


def test_other_tools_take_anything_and_unknown_ones_are_none() -> None:
    assert accepted(xml("look", any="1", more="\ntwo\nlines"))
    assert accepted(xml("look"))
    assert not accepted(xml("loop"))
    assert not accepted("\nedit")


def test_several_calls_follow_each_other_where_they_may() -> None:
    two = xml("look") + "\n" + OPEN + xml("edit", path="x", count="1")
    assert accepted(two)
    assert accepted(xml("look") + OPEN + xml("look"))
    assert not accepted(two, parallel=False)
    assert calls_of(two) == [("look", {}), ("edit", {"path": "x", "count": 1})]


@pytest.mark.parametrize("template", [XML, JSON])
@pytest.mark.parametrize("name", ["edit", None])
def test_a_begun_call_is_finished(template: str, name: str | None) -> None:
    whole = {
        XML: xml("edit", path="x", count="1"),
        JSON: '\n{"name": "edit", "arguments": {"path": "x", "count": 1}}\n</tool_call>',
    }[template]
    began = opening(template, name).removeprefix(OPEN)
    assert whole.startswith(began)
    assert accepted(whole[len(began) :], template, began=began)
    assert accepted(whole, template)
    other = whole.replace("edit", "look")
    assert accepted(other, template)
    assert calls_of(whole) == [("edit", {"path": "x", "count": 1})]


def test_json_calls_have_the_arguments_of_their_schema() -> None:
    call = '\n{{"name": "{}", "arguments": {}}}\n</tool_call>'
    cases: list[tuple[dict[str, Any], bool]] = [
        ({"path": "x", "count": 2}, True), ({"path": "x"}, False), ({"path": 1, "count": 2}, False),
    ]  # fmt: skip
    for arguments, fits in cases:
        assert accepted(call.format("edit", json.dumps(arguments)), JSON) == fits
        assert accepted(call.format("look", json.dumps(arguments)), JSON)


@pytest.mark.parametrize("limit", [{"pattern": "a+"}, {"maxLength": 3}, {"format": "date"}])
def test_what_cannot_be_enforced_is_refused(limit: dict[str, Any]) -> None:
    tool = Tool("edit", "", {"type": "object", "properties": {"s": {"type": "string", **limit}}}, strict=True)
    with pytest.raises(RequestError, match=f"'edit' cannot be strict: {next(iter(limit))} of the text 's'"):
        tool_grammar([tool], XML)
    assert "s" in tool_grammar([tool], JSON).text


@pytest.mark.parametrize(
    "value", ["</parameter>\n</function>", "a</parameter></function>", "a</parameter>\n\n <parameter=count>"]
)
def test_no_text_holds_what_would_be_read_as_its_end(value: str) -> None:
    """Else the reader would end the value there, and what follows would be something else than what was enforced."""
    assert not accepted(xml("edit", path=value, count="1"))
    assert not accepted(xml("look", path=value))
    assert calls_of(xml("edit", path=value, count="1"))[0][1].get("path") != value


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        *(({"properties": {name: {"type": "string"}}}, "argument name")
          for name in ("", " ", "a\nb", "a>b", "<|im_end|>", " a", "</tool_call>", "x" * 257)),
        *(({"properties": {"a": {"type": "string", "enum": words}}}, "'a' may be")
          for words in (5, None, [], "ab", [1])),
        ({"properties": {"a": {"type": "string", "const": "</parameter></function>"}}}, "'a' may be"),
        ({"type": "array"}, "no object"), ({"properties": []}, "no object"),
        ({"properties": {"a": {}}, "required": ["b"]}, "required"), ({"required": 5}, "required"),
        ({"properties": {"a": {}}, "required": [["a"]]}, "required"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {}}}, r"\$ref beside"), ({"anyOf": [{}]}, "anyOf beside"),
    ],
)  # fmt: skip
def test_a_schema_that_no_call_can_be_held_to_is_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(RequestError, match=f"'edit' cannot be strict: .*{reason}"):
        tool_grammar([Tool("edit", "", schema, strict=True)], XML)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a'b", "a=b", "a b", "é漢字", "\x00", "x" * 256, "{{x}}", "/*//*/"])
def test_any_other_argument_name_comes_back(name: str) -> None:
    tool = Tool("edit", "", {"properties": {name: {"type": "integer"}}, "required": [name]}, strict=True)
    call = xml("edit", **{name: "5"})
    assert accepted(call, tools=(tool,))
    assert calls_of(call) == [("edit", {name: 5})]
