"""Tools of the OpenAI chat API, and which of them a reply has to call."""

from collections.abc import Mapping, Sequence
from typing import Any

from strata.server.fields import Node, check_tools, nodes
from strata.server.problem import FieldError
from strata.text.calls import Tool, ToolChoice

_MODES = ("auto", "none", "required")


def tools_of(
    tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any] | None, *, parallel: bool
) -> tuple[list[Tool], ToolChoice]:
    """The tools that the model may call, and the choice. Raises FieldError for one that cannot be given or met."""
    known = [_tool(node) for node in nodes(tools, "tools")]
    check_tools(known, ToolChoice())
    if choice is None or isinstance(choice, str):
        wanted = ToolChoice(_mode(choice or "auto"), None, parallel)
    else:
        node = Node(choice, "tool_choice")
        if node.one_of("type", ("function", "allowed_tools")) == "function":
            wanted = ToolChoice("named", node.node("function").text("name"), parallel)
        else:
            known, wanted = _allowed(known, node.node("allowed_tools"), parallel)
    check_tools(known, wanted)
    return known, wanted


def _mode(word: str) -> str:
    if word not in _MODES:
        raise FieldError(f"tool_choice must be one of {', '.join(_MODES)}, or an object.", "tool_choice")
    return word


def _tool(node: Node) -> Tool:
    kind = node.text_or("type", "function")
    if kind != "function":
        raise node.wrong(f"({kind!r}) is not implemented by this server; describe the tool as a function", "type")
    function = node.node("function")
    schema = {} if function.value.get("parameters") is None else function.json("parameters")
    return Tool(function.text("name"), function.text_or("description", ""), schema, function.flag("strict"))


def _allowed(known: Sequence[Tool], node: Node, parallel: bool) -> tuple[list[Tool], ToolChoice]:
    """The tools among those known that may be called now."""
    mode = node.one_of("mode", ("auto", "required"))
    names = [tool.node("function").text("name") for tool in node.nodes("tools")]
    for name in names:
        if name not in (tool.name for tool in known):
            raise node.wrong(f"names {name!r}, which is not among the tools", "tools")
    return [tool for tool in known if tool.name in names], ToolChoice(mode, None, parallel)
