"""A reply with calls, in both APIs' forms, without an engine."""

import json
from typing import Any

from strata.server.anthropic_answer import MessagesAnswer
from strata.server.generation import Ask, End, Event
from strata.server.responses import ResponsesRequest, tools_of
from strata.server.responses_answer import ResponseAnswer
from strata.text import Part, Piece
from strata.text.calls import CallArguments, CallClosed, CallOpened

EVENTS: list[Event] = [
    Piece(Part.REASONING, "hm"), Piece(Part.ANSWER, "Let me. \n"), CallOpened(0, "call_1", "files__read"),
    CallArguments(0, '{"path":'), CallArguments(0, ' "a"}'), CallClosed(0), Piece(Part.ANSWER, "\n"),
    CallOpened(1, "call_2", "patch"), CallArguments(1, '{"input": "+\\"x\\""}'), CallClosed(1),
]  # fmt: skip
CUT: list[Event] = [CallOpened(2, "call_3", "patch"), CallArguments(2, '{"inp')]


def end(finish: str) -> End:
    return End(finish, 10, 4, 20, 1, 1.0, 1.0)


def events_of(frames: bytes) -> list[dict[str, Any]]:
    return [json.loads(line[6:]) for line in frames.decode().splitlines() if line.startswith("data: ")]


def test_anthropic_blocks_whole_and_streamed() -> None:
    whole = MessagesAnswer("m", 10).whole([*EVENTS, *CUT, end("length")])
    calls = [("files__read", {"path": "a"}, "toolu_1"), ("patch", {"input": '+"x"'}, "toolu_2")]
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    assert whole["content"][1]["text"] == "Let me."
    assert [(block["name"], block["input"], block["id"]) for block in whole["content"][2:]] == calls
    answer = MessagesAnswer("m", 10)
    events = events_of(b"".join(map(answer.frames, [*EVENTS, end("tool_calls")])))
    deltas = [event["delta"]["partial_json"] for event in events
              if event.get("delta", {}).get("type") == "input_json_delta"]  # fmt: skip
    assert json.loads("".join(deltas[:2])) == {"path": "a"}
    opened = [event["index"] for event in events if event["type"] == "content_block_start"]
    closed = [event["index"] for event in events if event["type"] == "content_block_stop"]
    assert opened == closed == [0, 1, 2, 3]
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert events[-2]["usage"]["input_tokens"] + events[-2]["usage"]["cache_read_input_tokens"] == 10


def answer_of() -> ResponseAnswer:
    function = {"type": "function", "name": "read", "parameters": {"type": "object"}}
    files = {"type": "namespace", "name": "files", "tools": [function]}
    request = ResponsesRequest(input="x", tools=[files, {"type": "custom", "name": "patch"}])
    return ResponseAnswer("m", None, request, Ask(), tools_of(request))  # type: ignore[arg-type]


def test_responses_items_whole_and_streamed() -> None:
    whole = answer_of().whole([*EVENTS, end("tool_calls")])
    assert [item["type"] for item in whole["output"]] == ["reasoning", "message", "function_call", "custom_tool_call"]
    call, custom = whole["output"][2:]
    assert (call["namespace"], call["name"], json.loads(call["arguments"])) == ("files", "read", {"path": "a"})
    assert (custom["input"], custom["call_id"], whole["status"]) == ('+"x"', "call_2", "completed")
    answer = answer_of()
    events = events_of(b"".join(map(answer.frames, [*EVENTS, end("tool_calls")])))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]
    cut = answer_of()
    events = events_of(b"".join(map(cut.frames, [*EVENTS, *CUT, end("length")])))
    assert sum(event["type"] == "response.output_item.done" for event in events) == 4
    assert (events[-1]["type"], len(events[-1]["response"]["output"])) == ("response.incomplete", 4)
