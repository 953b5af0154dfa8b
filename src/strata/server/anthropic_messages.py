"""Messages of the Anthropic API as the neutral conversation that chat templates take."""

from collections.abc import Mapping, Sequence
from typing import Any

from strata.server import opaque
from strata.server.fields import BLIND, Node, nodes

_BILLING = "x-anthropic-billing-header:"
"""A block that an agent addresses to its provider's bill; it differs in every request, and no cache would survive."""


def to_messages(
    system: str | Sequence[Mapping[str, Any]] | None, messages: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The conversation, the system prompt first. Raises FieldError."""
    result: list[dict[str, Any]] = []
    text = system if isinstance(system, str) else _texts(nodes(system or (), "system"))
    if text:
        result.append({"role": "system", "content": text})
    names: dict[str, str] = {}
    turns = nodes(messages, "messages")
    for turn in turns:
        role = turn.one_of("role", ("user", "assistant", "system"))
        if role == "assistant":
            result.append(_assistant(turn, names))
        elif role == "system":
            result.append({"role": "system", "content": _texts(_blocks(turn))})
        else:
            result += _user(turn, names)
    if turns[-1].value["role"] == "assistant":
        raise turns[-1].wrong("is the assistant's, and this server continues no reply; the last must be the user's")
    return result


def _blocks(holder: Node) -> list[Node]:
    """The content of a message or of a tool's result; a mere text is one block."""
    content = holder.value.get("content")
    if isinstance(content, str):
        return [Node({"type": "text", "text": content}, holder.at("content"))]
    if not isinstance(content, list):
        raise holder.wrong("must be a text or a list of blocks", "content")
    return nodes(content, holder.at("content"))


def _texts(blocks: Sequence[Node]) -> str:
    return "\n\n".join(text for block in blocks if not (text := _text(block)).startswith(_BILLING))


def _text(block: Node) -> str:
    """The text of a block of input."""
    kind = block.text("type")
    if kind == "text":
        return block.text("text")
    if kind == "document":
        return _document(block)
    if kind == "search_result":
        found = _texts(block.nodes("content"))
        return f"{block.text_or('title', '')}\n{block.text_or('source', '')}\n{found}"
    if kind == "image":
        raise block.wrong("is an image, and this model has no vision; send text")
    raise block.wrong(f"has the type {kind!r}, which is not understood here", "type")


def _document(block: Node) -> str:
    source = block.node("source")
    kind = source.text("type")
    if kind == "text":
        text = source.text("data")
    elif kind == "content":
        text = _texts(_blocks(source))
    else:
        raise source.wrong(f"is {kind!r}, and this server reads documents of the types text and content only", "type")
    return "\n\n".join(part for part in (block.text_or("title", ""), block.text_or("context", ""), text) if part)


def _user(turn: Node, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """A user's message: results of tools are messages of their own."""
    result: list[dict[str, Any]] = []
    waiting: list[Node] = []

    def close() -> None:
        if waiting:
            result.append({"role": "user", "content": _texts(waiting)})
            waiting.clear()

    for block in _blocks(turn):
        if block.value.get("type") == "tool_result":
            close()
            result.append(_tool_result(block, names))
        else:
            waiting.append(block)
    close()
    return result or [{"role": "user", "content": ""}]


def _tool_result(block: Node, names: Mapping[str, str]) -> dict[str, Any]:
    call = block.text("tool_use_id")
    if call not in names:
        raise block.wrong(f"({call!r}) belongs to no tool_use of the messages before it", "tool_use_id")
    content = [] if block.value.get("content") is None else _blocks(block)
    text = "\n\n".join(_result_text(part) for part in content)
    if block.flag("is_error") and not text.lower().startswith("error"):
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": call, "name": names[call], "content": text}


def _result_text(part: Node) -> str:
    """What a tool gave back. An image there is named to the model: refused, it would stop the agent for good."""
    kind = part.value.get("type")
    if kind == "image":
        return BLIND
    if kind == "tool_reference":
        return part.text("tool_name")
    return _text(part)


def _assistant(turn: Node, names: dict[str, str]) -> dict[str, Any]:
    texts, thoughts, calls = [], [], []
    for block in _blocks(turn):
        kind = block.text("type")
        if kind == "text":
            texts.append(block.text("text"))
        elif kind == "thinking":
            thoughts.append(block.text("thinking") or opaque.unwrap(block.text_or("signature", "")) or "")
        elif kind == "redacted_thinking":
            thoughts.append(opaque.unwrap(block.text("data")) or "")
        elif kind == "tool_use":
            number, name = block.text("id"), block.text("name")
            names[number] = name
            function = {"name": name, "arguments": block.json("input")}
            calls.append({"id": number, "type": "function", "function": function})
        else:
            raise block.wrong(f"has the type {kind!r}, which is not understood here", "type")
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if thought := "\n\n".join(filter(None, thoughts)):
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return message
