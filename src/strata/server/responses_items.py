"""Input of the Responses API as the neutral conversation that chat templates take."""

from collections.abc import Mapping, Sequence
from typing import Any

from strata.server import opaque
from strata.server.fields import Node, arguments_of, nodes, parts_text
from strata.server.responses_tools import flat_name

_OUTPUTS = {"function_call_output": "function_call", "custom_tool_call_output": "custom_tool_call"}


def to_messages(
    given: str | Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """The messages that an input adds to those `before` it. Raises FieldError."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    turns = _Turns(before)
    for item in nodes(given, "input"):
        turns.add(item)
    return turns.messages


class _Turns:
    """Items in, messages out: thinking, text and calls that follow one another are one message of the assistant."""

    def __init__(self, before: Sequence[Mapping[str, Any]]) -> None:
        self.messages: list[dict[str, Any]] = []
        self._names = {call["id"]: call["function"]["name"] for message in before
                       for call in message.get("tool_calls", ())}  # fmt: skip

    def add(self, item: Node) -> None:
        """The next item."""
        kind = item.text_or("type", "message")
        if kind == "message":
            self._message(item)
        elif kind == "reasoning":
            self._assistant(thought=_thought(item))
        elif kind in ("function_call", "custom_tool_call"):
            self._call(item, kind)
        elif kind in _OUTPUTS:
            self._output(item)
        elif kind == "item_reference":
            raise item.wrong("refers to a stored item, and only whole responses are stored; send the item itself")
        else:
            raise item.wrong(f"({kind!r}) is no item that this server understands", "type")

    def _message(self, item: Node) -> None:
        role = item.one_of("role", ("user", "assistant", "system", "developer"))
        text = parts_text(item, "content")
        if role == "assistant":
            self._assistant(text=text)
        else:
            self.messages.append({"role": role, "content": text})

    def _assistant(self, *, thought: str = "", text: str = "") -> dict[str, Any]:
        """The assistant's message that these belong to. Thinking begins a new one after text or calls."""
        last = self.messages[-1] if self.messages else None
        begun = last is not None and last["role"] == "assistant"
        if last is None or not begun or ((thought or text) and (last["content"] or "tool_calls" in last)):
            last = {"role": "assistant", "content": ""}
            self.messages.append(last)
        if thought:
            earlier = last.get("reasoning_content")
            last["reasoning_content"] = f"{earlier}\n\n{thought}" if earlier else thought
        last["content"] += text
        return last

    def _call(self, item: Node, kind: str) -> None:
        number, name = item.text("call_id"), flat_name(item.text("name"), item.text_or("namespace", None))
        self._names[number] = name
        arguments = {"input": item.text("input")} if kind == "custom_tool_call" else arguments_of(item)
        call = {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}
        self._assistant().setdefault("tool_calls", []).append(call)

    def _output(self, item: Node) -> None:
        number = item.text("call_id")
        if number not in self._names:
            raise item.wrong(f"({number!r}) belongs to no call of the items before it", "call_id")
        text = parts_text(item, "output", blind=True)
        self.messages.append({"role": "tool", "tool_call_id": number, "name": self._names[number], "content": text})


def _thought(item: Node) -> str:
    """The thinking of an item: in the open, or in what was given to the client to carry."""
    open_texts = [part.text("text") for name in ("content", "summary") if item.value.get(name)
                  for part in item.nodes(name)]  # fmt: skip
    carried = opaque.unwrap(item.text_or("encrypted_content", ""))
    return carried if carried is not None else "\n\n".join(open_texts)
