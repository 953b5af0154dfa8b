"""Messages of the OpenAI chat API as the neutral conversation that chat templates take."""

from collections.abc import Mapping, Sequence
from typing import Any

from strata.server.fields import Node, arguments_of, nodes, parts_text

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def to_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The conversation. Raises FieldError."""
    names: dict[str, str] = {}
    return [_message(node, names) for node in nodes(messages, "messages")]


def _message(node: Node, names: dict[str, str]) -> dict[str, Any]:
    """A message; `names` are those of the calls so far, by their ids."""
    role = node.one_of("role", _ROLES)
    if role in ("tool", "function"):
        return _result(node, role, names)
    if role != "assistant":
        return {"role": role, "content": parts_text(node, "content")}
    result = {"role": role, "content": "" if node.value.get("content") is None else parts_text(node, "content")}
    reasoning = node.value.get("reasoning_content") or node.value.get("reasoning")
    if isinstance(reasoning, str):
        result["reasoning_content"] = reasoning
    calls = [_call(call, names) for call in (node.nodes("tool_calls") if node.value.get("tool_calls") else ())]
    if node.value.get("function_call"):
        calls.append(_called(node.node("function_call"), "function_call", names))
    return {**result, "tool_calls": calls} if calls else result


def _call(node: Node, names: dict[str, str]) -> dict[str, Any]:
    if "type" in node.value:
        node.one_of("type", ("function",))
    return _called(node.node("function"), node.text("id"), names)


def _called(function: Node, number: str, names: dict[str, str]) -> dict[str, Any]:
    name = function.text("name")
    names[number] = name
    given = function.value.get("arguments")
    arguments = function.json("arguments") if isinstance(given, dict) else arguments_of(function)
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def _result(node: Node, role: str, names: Mapping[str, str]) -> dict[str, Any]:
    """What a tool gave back; an image there is named to the model: refused, it would stop the agent for good."""
    number = node.text("tool_call_id") if role == "tool" else "function_call"
    if number not in names:
        raise node.wrong(f"({number!r}) belongs to no tool call of the messages before it", "tool_call_id")
    content = "" if node.value.get("content") is None else parts_text(node, "content", blind=True)
    return {"role": "tool", "tool_call_id": number, "name": names[number], "content": content}
