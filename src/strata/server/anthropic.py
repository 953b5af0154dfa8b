"""The Anthropic form of requests and errors (https://docs.anthropic.com/en/api/messages).

Fields that this server does not know are allowed: agents send many (cache_control, metadata, context_management and
whatever their betas bring), and what they say has no meaning here. Fields that would change the answer are refused.
"""

import re
from typing import Any

from strata.server.anthropic_messages import to_messages
from strata.server.fields import Node, SamplingFields, check_tools, decode, nodes
from strata.server.generation import Ask
from strata.server.problem import FieldError, Problem
from strata.server.sampling import Sampling
from strata.server.structured import schema_of
from strata.text.calls import Tool, ToolChoice
from strata.text.grammar import Grammar

PATH = "/v1/messages"
EFFORTS = ("low", "medium", "high", "xhigh", "max")
_BUDGET_EFFORTS = ((2048, "low"), (8192, "medium"))
_KINDS = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    408: "timeout_error", 409: "conflict_error", 413: "request_too_large", 429: "rate_limit_error",
}  # fmt: skip
# Tools that the API's owner runs itself; a name is one of these with a date behind it.
_HOSTED = ("web_search", "web_fetch", "code_execution", "tool_search_tool", "advisor", "mcp_toolset")
_DATED = re.compile(r"_20\d{6}$")


class MessagesRequest(SamplingFields):
    """The implemented fields of POST /v1/messages and of its count_tokens, which needs no max_tokens."""

    messages: list[dict[str, Any]] | None = None
    model: str | None = None
    max_tokens: int | None = None
    system: str | list[dict[str, Any]] | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None
    mcp_servers: list[Any] | None = None
    container: Any = None

    @property
    def shows_thinking(self) -> bool:
        """Whether the client wants to read the thinking, not just to carry it."""
        return (self.thinking or {}).get("display") != "omitted"


def owns(path: str) -> bool:
    """Whether a path belongs to this API, so that errors there have its form."""
    return path == PATH or path.startswith(f"{PATH}/")


def parse(body: bytes) -> MessagesRequest:
    """A request from its JSON body. Raises FieldError."""
    request = decode(body, MessagesRequest)
    for name, value in (("mcp_servers", request.mcp_servers), ("container", request.container)):
        if value:
            raise FieldError(f"{name} is not implemented by this server; leave it out.", name)
    return request


def to_ask(request: MessagesRequest, defaults: Sampling, *, switchable: bool) -> Ask:
    """The neutral form of a request. Raises FieldError.

    Without a word about thinking there is none, as this API has it, unless the model cannot do without
    (`switchable` False): helper calls of agents have few tokens, all of which thinking would take.
    """
    if not request.messages:
        raise FieldError("messages must hold at least one message.", "messages")
    thinking, budget, effort = _thinking(request)
    tools = _tools(request)
    choice = _choice(request)
    check_tools(tools, choice)
    stop = request.stop_sequences or []
    if not all(stop):
        raise FieldError("stop_sequences may not hold an empty text.", "stop_sequences")
    return Ask(
        messages=to_messages(request.system, request.messages),
        sampling=request.sampling(defaults),
        max_tokens=request.max_tokens,
        stop=tuple(stop),
        thinking=thinking if thinking is not None or not switchable else False,
        effort=effort,
        thinking_budget=budget,
        tools=tools,
        tool_choice=choice,
        grammar=_grammar(request),
    )


def check_limit(request: MessagesRequest, ask: Ask) -> None:
    """Raises FieldError when the limit of an answer is missing, or leaves nothing after the thinking's budget."""
    limit, budget = request.max_tokens, ask.thinking_budget or 0
    if limit is None:
        raise FieldError("max_tokens: field required.", "max_tokens")
    if limit < 1:
        raise FieldError(f"max_tokens must be at least 1, not {limit}.", "max_tokens")
    if limit <= budget:
        raise FieldError(
            f"max_tokens ({limit}) must be greater than thinking.budget_tokens ({budget}), or no answer is left.",
            "max_tokens",
        )


def error(problem: Problem, request_id: str | None = None) -> dict[str, Any]:
    """The body of an error."""
    kind = _KINDS.get(problem.status, "invalid_request_error" if problem.status < 500 else "api_error")
    if problem.code in ("kv_pool_full", "engine_unavailable", "overloaded"):
        kind = "overloaded_error"
    message = problem.message
    if problem.tokens is not None and problem.most is not None:
        # Agents look for these words and numbers, and make the conversation shorter.
        message = f"prompt is too long: {problem.tokens} tokens > {problem.most} maximum. {message}"
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}


def _thinking(request: MessagesRequest) -> tuple[bool | None, int | None, str | None]:
    """Whether to think, for how many tokens at most, and how hard."""
    effort = None
    if request.output_config and request.output_config.get("effort") is not None:
        effort = Node(request.output_config, "output_config").one_of("effort", EFFORTS)
    if request.thinking is None:
        return None, None, effort
    node = Node(request.thinking, "thinking")
    kind = node.one_of("type", ("disabled", "enabled", "adaptive"))
    if node.value.get("display") is not None:
        node.one_of("display", ("summarized", "omitted"))
    if kind == "disabled":
        return False, None, effort
    budget = node.value.get("budget_tokens")
    if kind == "adaptive" and budget is None:
        return True, None, effort
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise node.wrong("must be a number of tokens, at least 1", "budget_tokens")
    return True, budget, effort or next((word for most, word in _BUDGET_EFFORTS if budget < most), "high")


def _tools(request: MessagesRequest) -> list[Tool]:
    """The tools that the client runs. Those of the API's owner are left out beside them, and refused without them."""
    tools, hosted = [], []
    for node in nodes(request.tools or (), "tools"):
        kind = node.text_or("type", "custom")
        if kind == "custom":
            schema = node.json("input_schema")
            tools.append(Tool(node.text("name"), node.text_or("description", ""), schema, node.flag("strict")))
        elif kind.startswith(_HOSTED):
            hosted.append((_DATED.sub("", kind), node))
        else:
            raise node.wrong(
                f"({kind!r}) is a tool without a schema, which this model does not know; describe it with input_schema",
                "type",
            )
    named = (request.tool_choice or {}).get("name")
    for name, node in hosted:
        if not tools or named in (name, node.value.get("name")):
            raise node.wrong(f"({name!r}) would be run by the server, and this server has no such tool", "type")
    return tools


def _choice(request: MessagesRequest) -> ToolChoice:
    if request.tool_choice is None:
        return ToolChoice()
    node = Node(request.tool_choice, "tool_choice")
    kind = node.one_of("type", ("auto", "any", "tool", "none"))
    parallel = not node.flag("disable_parallel_tool_use")
    if kind == "tool":
        return ToolChoice("named", node.text("name"), parallel)
    return ToolChoice({"any": "required"}.get(kind, kind), None, parallel)


def _grammar(request: MessagesRequest) -> Grammar | None:
    if request.output_config and request.output_config.get("format") is not None:
        node = Node(request.output_config, "output_config").node("format")
    elif request.output_format is not None:
        node = Node(request.output_format, "output_format")
    else:
        return None
    node.one_of("type", ("json_schema",))
    return schema_of(node)
