"""Tool calls in a reply: told while they are written, the same however the text is cut, nothing lost."""

import contextlib
import itertools
import json
import random
import re
from typing import Any

import pytest

from strata.text.calls import CallArguments, CallClosed, CallOpened, Tool
from strata.text.reasoning import Piece
from strata.text.tool_calls import CallEvent, ToolCallParser, opening

TOOLS = (
    Tool("weather", "", {"type": "object", "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"},
        "unit": {"enum": ["C", "F", "5"]}, "note": {"type": ["string", "null"]}, "which": {"$ref": "#/$defs/which"},
        "either": {"anyOf": [{"type": "string"}, {"type": "number"}]}, "box": {"type": "object"},
    }, "$defs": {"which": {"type": "string"}}}),
    Tool("write"),
)  # fmt: skip


def parse(pieces: Any, natural: bool = True) -> list[CallEvent]:
    numbers = itertools.count()
    parser = ToolCallParser(TOOLS, lambda: f"id{next(numbers)}")
    events = [event for piece in pieces for event in parser.push(piece)] + parser.finish(natural=natural)
    text = "".join(event.text for event in events if isinstance(event, Piece))
    assert parser.taken + len(text) <= sum(map(len, pieces))
    return events


def joined(events: list[CallEvent]) -> list[CallEvent]:
    """Neighbouring pieces of one kind as one, so that only what they say counts."""
    result: list[CallEvent] = []
    for event in events:
        last = result[-1] if result else None
        if isinstance(event, Piece) and isinstance(last, Piece):
            result[-1] = Piece(last.part, last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments):
            result[-1] = CallArguments(last.index, last.text + event.text)
        else:
            result.append(event)
    return result


def told(events: list[CallEvent]) -> tuple[str, list[tuple[str, Any]]]:
    """All text, and the calls that are complete with their arguments."""
    text = "".join(event.text for event in events if isinstance(event, Piece))
    names = {event.index: event.name for event in events if isinstance(event, CallOpened)}
    pieces = dict.fromkeys(names, "")
    for event in events:
        if isinstance(event, CallArguments):
            pieces[event.index] += event.text
    closed = [event.index for event in events if isinstance(event, CallClosed)]
    return text, [(names[index], json.loads(pieces[index])) for index in closed]


def xml(name: str, **values: str) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def test_the_xml_form() -> None:
    text = "I look.\n\n" + xml("weather", city="Sao Tomé \"x\"\n<b>", days="3", exact="true")
    assert told(parse([text])) == ("I look.", [("weather", {"city": "Sao Tomé \"x\"\n<b>", "days": 3, "exact": True})])
    assert told(parse([xml("weather")])) == ("", [("weather", {})])


def test_the_json_form() -> None:
    call = {"name": "weather", "arguments": {"city": "a </tool_call> {", "box": {"x": [1, {"y": None}]}}}
    for order in (call, dict(reversed(call.items()))):
        text = f"<tool_call>\n{json.dumps(order)}\n</tool_call>"
        assert told(parse([text])) == ("", [("weather", call["arguments"])])
    stringified = {"name": "write", "arguments": '{"a": 1}'}
    assert told(parse([f"<tool_call>{json.dumps(stringified)}</tool_call>"])) == ("", [("write", {"a": 1})])
    assert told(parse(['<tool_call>{"name": "write"}</tool_call>'])) == ("", [("write", {})])


def test_line_breaks_inside_of_json_texts_are_escaped() -> None:
    text = '<tool_call>{"name": "write", "arguments": {"text": "one\ntwo\tthree"}}</tool_call>'
    assert told(parse([text])) == ("", [("write", {"text": "one\ntwo\tthree"})])


def test_calls_are_told_while_they_are_written() -> None:
    parser = ToolCallParser(TOOLS)
    seen = ""
    for character in '<tool_call>\n<function=weather>\n<parameter=city>\nLondon is "big"':
        seen += "".join(type(event).__name__[4] + getattr(event, "text", "") for event in parser.push(character))
    assert seen.replace("A", "") == 'O{"city": "London is \\"big\\"'
    parser = ToolCallParser(TOOLS)
    seen = ""
    for character in '<tool_call>{"name": "write", "arguments": {"path": "a", "x':
        seen += "".join(type(event).__name__[4] + getattr(event, "text", "") for event in parser.push(character))
    assert seen.replace("A", "") == 'O{"path": "a", "x'


@pytest.mark.parametrize(
    ("argument", "written", "value"),
    [
        ("city", "5", "5"), ("city", "null", "null"), ("city", '"x"', '"x"'), ("which", "true", "true"),
        ("days", "5", 5), ("days", "five", "five"), ("days", '"5"', "5"), ("exact", "True", True),
        ("exact", "false", False), ("note", "null", None), ("note", "7", "7"), ("note", '"null"', '"null"'),
        ("unit", "5", "5"), ("unit", "C", "C"), ("either", "5", 5), ("either", "5 days", "5 days"),
        ("box", '{"a": [1, 2.50]}', {"a": [1, 2.5]}), ("box", "{'a': 1}", "{'a': 1}"), ("box", "{", "{"),
        ("unknown", "5", 5), ("unknown", "x y", "x y"), ("unknown", '"x"', "x"), ("unknown", "NaN", "NaN"),
        ("unknown", "[1,", "[1,"), ("unknown", " \n", " \n"), ("unknown", "", ""), ("city", "", ""),
        ("unknown", "[" * 5000, "[" * 5000), ("unknown", "9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_values_are_json_unless_the_schema_says_text(argument: str, written: str, value: Any) -> None:
    assert told(parse([xml("weather", **{argument: written})])) == ("", [("weather", {argument: value})])


def test_end_of_parameter_counts_only_before_another_or_the_end_of_the_function() -> None:
    value = "Write </parameter> and\n</parameter>\n</tool_call> or <parameter=x>"
    assert told(parse([xml("weather", city=value, days="1")])) == ("", [("weather", {"city": value, "days": 1})])
    assert told(parse([xml("weather", box=value)])) == ("", [("weather", {"box": value})])


@pytest.mark.parametrize("between", ["", "\n", "\n\n  "])
def test_several_calls_with_anything_or_nothing_between(between: str) -> None:
    one, two = xml("weather", city="a"), '<tool_call>{"name": "write", "arguments": {}}</tool_call>'
    calls = [("weather", {"city": "a"}), ("write", {}), ("weather", {"city": "a"})]
    assert told(parse([between.join((one, two, one))])) == ("", calls)
    inside = one.removesuffix("</tool_call>") + between + xml("write").removeprefix("<tool_call>")
    assert told(parse([inside])) == ("", [("weather", {"city": "a"}), ("write", {})])
    objects = f'<tool_call>{{"name": "write"}}{between}{{"name": "weather"}}</tool_call>'
    assert told(parse([objects])) == ("", [("write", {}), ("weather", {})])


def test_unknown_tools_are_passed_on() -> None:
    assert told(parse([xml("nobody", a="1")])) == ("", [("nobody", {"a": 1})])


def test_call_without_its_first_mark_is_one_if_the_function_is_known() -> None:
    bare = xml("weather", city="a").removeprefix("<tool_call>\n")
    assert told(parse([bare])) == ("", [("weather", {"city": "a"})])
    unknown = bare.replace("weather", "nobody")
    assert told(parse([unknown])) == (unknown, [])


@pytest.mark.parametrize(
    "text",
    ["Use <tool_call> for it.", "<tool_call>\n<function=\n>", "<tool_call>[1]</tool_call>", "x <tool_call",
     "a\n\n", "<tool_call>\n<function=a b>hello", '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
     "<tool_call>\n", '<tool_call>{"name": "a", "arguments": 7}</tool_call>', "<function=write>x",
     '<tool_call>{"x": "a "b"}</tool_call>', f"<tool_call><function={'n' * 300}>",
     "<tool_call>{'name': 'a'}</tool_call>", "  <tool_call>\n<funct"],
)  # fmt: skip
def test_broken_calls_are_text(text: str) -> None:
    for natural in (True, False):
        assert joined(parse([text], natural)) == [Piece(parse([text])[0].part, text)]  # type: ignore[union-attr]


def test_text_of_a_call_that_breaks_late_is_not_lost() -> None:
    text = '<tool_call>{"name": "write", "arguments": {"a": "b" oops}}</tool_call> done'
    assert told(parse([text])) == (text, [])
    late = "<tool_call><function=write><parameter=a>\n1</parameter><parameter=\n>x"
    assert told(parse([late])) == (late, [])


def test_call_cut_off_by_a_limit_is_not_closed_and_what_was_told_stays() -> None:
    whole = xml("weather", city="Lima")
    for size in range(whole.index("</function>") - 1):
        events = parse([whole[:size]], natural=False)
        assert not any(isinstance(event, CallClosed) for event in events)
        opened = any(isinstance(event, CallOpened) for event in events)
        text = "".join(event.text for event in events if isinstance(event, Piece))
        assert text == ("" if opened else whole[:size])


def test_call_that_lacks_only_its_last_marks_is_whole_if_the_model_ended_there() -> None:
    json_form = '<tool_call>{"name": "weather", "arguments": {"city": "Lima"}}'
    for whole in (xml("weather", city="Lima", days="2"), json_form):
        least = whole.rindex("</parameter>") + 12 if "</parameter>" in whole else len(whole) - 1
        for size in range(least, len(whole) + 1):
            text, calls = told(parse([whole[:size]]))
            assert (text, [name for name, _ in calls]) == ("", ["weather"])
        text, calls = told(parse([whole[: least - 1]]))
        assert (text, calls) == (whole[: least - 1], [])


def test_forced_openings_begin_calls_of_either_form() -> None:
    xml_template, json_template = "<tool_call>\n<function=", "<tool_call>\n{"
    assert told(parse([opening(xml_template, "weather") + "</function>"])) == ("", [("weather", {})])
    assert told(parse([opening(xml_template, None) + "=weather></function>"])) == ("", [("weather", {})])
    assert told(parse([opening(json_template, "weather") + ' {"a": 1}}'])) == ("", [("weather", {"a": 1})])
    assert told(parse([opening(json_template, None) + ' "weather"}'])) == ("", [("weather", {})])


# What follows reads a whole text with other means: regular expressions and the standard library's JSON decoder.
ENDS = ("<parameter=", "</function>")
PREFIXES = "|".join(re.escape(mark[:size]) for mark in ENDS for size in range(len(mark)))
VALUE = re.compile(
    rf"(?:\r?\n)?(.*?)(?:\r?\n)?</parameter>(?:\s*(?=<parameter=|</function>)|\s*(?:{PREFIXES})\Z)", re.DOTALL
)
NAME = re.compile(r"(?P<name>[^<>\n]{1,256})>")
DECODER = json.JSONDecoder(strict=False, parse_constant=lambda text: pytest.fail(text))


def read_function(text: str, at: int) -> tuple[str, dict[str, Any], int] | int | None:
    """The function whose name begins at `at`: name, arguments, where it ends.

    None: it is none. A number: it broke after it was told; up to there all is text.
    """
    name = NAME.match(text, at)
    if name is None or not name["name"].strip():
        return None
    at, arguments = name.end(), {}
    space = re.compile(r"\s*").match(text, at)
    assert space is not None
    at = space.end()
    while text.startswith("<parameter=", at):
        key = NAME.match(text, at + 11)
        value = VALUE.match(text, key.end()) if key else None
        if key is None or not key["name"].strip():
            return len(text) if ">" not in text[at:] and not re.search(r"[<\n]", text[at + 11 :]) else at + 11
        if value is None:
            return len(text)
        known = TOOLS[0].parameters["properties"] if name["name"].strip() == "weather" else {}
        kind = known.get(key["name"].strip(), {})
        written: Any = value[1]
        if kind.get("type") != "string":
            with contextlib.suppress(ValueError):
                written = json.loads(value[1])
        arguments[key["name"].strip()] = written
        at = value.end()
    if text.startswith("</function>", at):
        return name["name"].strip(), arguments, at + 11
    return (name["name"].strip(), arguments, len(text)) if at == len(text) and arguments else None


def read_object(text: str, at: int) -> tuple[str, dict[str, Any], int] | None:
    try:
        value, end = DECODER.raw_decode(text, at)
    except ValueError:
        return None
    arguments = value.get("arguments", {})
    if not (isinstance(value.get("name"), str) and value["name"] and isinstance(arguments, dict)):
        return None
    return value["name"], arguments, end


def oracle(text: str) -> tuple[str, list[tuple[str, Any]]]:
    shown, calls, at, after = "", [], 0, False
    while found := re.compile("<tool_call>|<function=(?:weather|write)>").search(text, at):
        start = found.start()
        before = text[at:start].lstrip() if after else text[at:start]
        inner = re.compile(r"\s*").match(text, found.end()).end()  # type: ignore[union-attr]
        kinds = (("<function=", 10, read_function), ("{", 0, read_object))
        if found.group() != "<tool_call>":
            inner = start
        call = next((read(text, inner + skip) for mark, skip, read in kinds if text.startswith(mark, inner)), None)
        if call is None:
            shown, at, after = shown + before + found.group(), found.end(), False
            continue
        if isinstance(call, int):
            shown, at, after = shown + before + text[start:call], call, False
            continue
        shown += before.rstrip()
        while call is not None:
            calls.append(call[:2])
            is_object = text.startswith("{", inner)
            at = re.compile(r"\s*").match(text, call[2]).end()  # type: ignore[union-attr]
            inner = at
            call = None
            if text.startswith("<function=", at):
                call = read_function(text, at + 10)
                if isinstance(call, int):
                    break
            elif is_object and text.startswith("{", at):
                call = read_object(text, at)
        if isinstance(call, int):
            shown, at, after = shown + text[at:call], call, False
            continue
        marked = text.startswith("</tool_call>", at)
        at = at + 12 if marked else at
        at = len(text) if not marked and "</tool_call>".startswith(text[at:]) else at
        after = True
    rest = text[at:].lstrip() if after else text[at:]
    return shown + rest, calls


GOOD = ["<tool_call>", "</tool_call>", "<function=", "<function=write>", "weather>", "<parameter=", "city>", "days>",
        "\n", " ", "</parameter>", "</function>", "text", "5", "<", ">", xml("weather", city="x", days="5"),
        xml("write", b="[1]"), '{"name": "write", "arguments": {"a": "b\\"c"}}', "\r\n", "é😀"]  # fmt: skip


def random_text(rng: random.Random) -> str:
    text = "".join(rng.choice(GOOD) for _ in range(rng.randint(1, 14)))
    if rng.random() < 0.5:
        begin = rng.randrange(len(text))
        text = text[:begin] + text[begin + rng.randint(1, 3) :]
    return text


def cut(text: str, rng: random.Random) -> list[str]:
    pieces = []
    while text:
        size = rng.choice((1, 2, 3, 7, 40))
        pieces.append(text[:size])
        text = text[size:]
    return pieces


@pytest.mark.parametrize("seed", range(20))
def test_events_do_not_depend_on_how_the_text_is_cut(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        text = random_text(rng)
        natural = rng.random() < 0.7
        whole = joined(parse([text], natural))
        for pieces in (list(text), cut(text, rng), cut(text, rng)):
            assert joined(parse(pieces, natural)) == whole, (text, pieces)


@pytest.mark.parametrize("seed", range(20))
def test_calls_are_those_of_a_reader_of_the_whole_text(seed: int) -> None:
    rng = random.Random(1000 + seed)
    for _ in range(200):
        text = random_text(rng)
        assert told(parse([text])) == oracle(text), repr(text)
