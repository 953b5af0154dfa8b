"""Tools of the Responses API: functions, custom tools (free text in, as coding agents use them) and namespaces."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from strata.server.fields import Node, check_tools, nodes
from strata.server.problem import FieldError
from strata.text.calls import Tool, ToolChoice

# Tools that the API's owner runs. Agents add them to every request, so they are left out beside others.
_HOSTED = ("web_search", "file_search", "code_interpreter", "image_generation", "mcp", "tool_search",
           "programmatic_tool_calling")  # fmt: skip
_MODES = ("auto", "none", "required")


@dataclass(frozen=True, slots=True)
class Origin:
    """What a client calls a tool."""

    kind: Literal["function", "custom"]
    name: str
    namespace: str | None = None


@dataclass(slots=True)
class Offered:
    """The tools of a request: `tools` as the model sees them, `origins` by those names, `served` as they were given."""

    tools: list[Tool] = field(default_factory=list)
    origins: dict[str, Origin] = field(default_factory=dict)
    served: list[Mapping[str, Any]] = field(default_factory=list)
    choice: ToolChoice = ToolChoice()


def flat_name(name: str, namespace: str | None) -> str:
    """A tool's name as the model sees it: there are no namespaces for it."""
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


def offered(
    tools: Sequence[Mapping[str, Any]], choice: str | Mapping[str, Any] | None, *, parallel: bool
) -> Offered:
    """The tools that the model may call. Raises FieldError for one that this server cannot give."""
    result = Offered()
    hosted = []
    for node in nodes(tools, "tools"):
        kind = node.text("type")
        if kind.startswith(_HOSTED):
            hosted.append((kind, node))
            continue
        if kind == "namespace":
            for inner in node.nodes("tools"):
                _add(result, inner, inner.text("type"), node.text("name"))
        else:
            _add(result, node, kind, None)
        result.served.append(node.value)
    for kind, node in hosted:
        if not result.tools or (isinstance(choice, Mapping) and choice.get("type") == kind):
            raise node.wrong(f"({kind!r}) would be run by the server, and this server has no such tool", "type")
    check_tools(result.tools, ToolChoice())
    result.choice = _choice(result, choice, parallel)
    check_tools(result.tools, result.choice)
    return result


def _add(result: Offered, node: Node, kind: str, namespace: str | None) -> None:
    if kind not in ("function", "custom"):
        raise node.wrong(f"({kind!r}) is not implemented by this server; describe the tool as a function", "type")
    name = node.text("name")
    flat = flat_name(name, namespace)
    description = node.text_or("description", "")
    if kind == "function":
        schema = {} if node.value.get("parameters") is None else node.json("parameters")
        result.tools.append(Tool(flat, description, schema, node.flag("strict")))
        result.origins[flat] = Origin("function", name, namespace)
    else:
        result.tools.append(_custom(flat, description, node))
        result.origins[flat] = Origin("custom", name, namespace)


def _custom(name: str, description: str, node: Node) -> Tool:
    """A custom tool as a function of one text. A grammar of that text is told to the model, not enforced."""
    about = "The whole input of the tool, as it is."
    if node.value.get("format") is not None:
        form = node.node("format")
        if form.one_of("type", ("text", "grammar")) == "grammar":
            syntax = form.one_of("syntax", ("lark", "regex"))
            about += f" It has to match this {syntax} grammar:\n{form.text('definition')}"
    properties = {"input": {"type": "string", "description": about}}
    return Tool(name, description, {"type": "object", "properties": properties, "required": ["input"]})


def _choice(result: Offered, choice: str | Mapping[str, Any] | None, parallel: bool) -> ToolChoice:
    if choice is None:
        return ToolChoice("auto", None, parallel)
    if isinstance(choice, str):
        if choice not in _MODES:
            raise FieldError(f"tool_choice must be one of {', '.join(_MODES)}, or an object.", "tool_choice")
        return ToolChoice(choice, None, parallel)
    node = Node(choice, "tool_choice")
    kind = node.one_of("type", ("function", "custom", "allowed_tools"))
    if kind != "allowed_tools":
        return ToolChoice("named", flat_name(node.text("name"), node.text_or("namespace", None)), parallel)
    mode = node.one_of("mode", ("auto", "required"))
    allowed = [flat_name(tool.text("name"), tool.text_or("namespace", None)) for tool in node.nodes("tools")]
    for name in allowed:
        if name not in result.origins:
            raise node.wrong(f"names {name!r}, which is not among the tools", "tools")
    result.tools = [tool for tool in result.tools if tool.name in allowed]
    return ToolChoice(mode, None, parallel)
