"""The chat format: what the template renders, built directly for training text."""

from __future__ import annotations

import json
from typing import Any

from .template import CHAT_TEMPLATE, TOOLS_AFTER, TOOLS_BEFORE

Message = dict[str, Any]

__all__ = ["CHAT_TEMPLATE", "Message", "generation_prompt", "render"]


def tool_call_text(call: Message) -> str:
    """A call {"name", "arguments"} in the XML form of Qwen's newer models."""
    parts = [f"<tool_call>\n<function={call['name']}>\n"]
    for name, value in call["arguments"].items():
        text = value if isinstance(value, str) else json.dumps(value)
        parts.append(f"<parameter={name}>\n{text}\n</parameter>\n")
    return "".join(parts) + "</function>\n</tool_call>"


def render(messages: list[Message], tools: list[Message] | None = None) -> str:
    """The whole conversation as text, equal to the template's for the same messages without a generation prompt."""
    out = []
    messages = list(messages)
    system = messages.pop(0)["content"] if messages and messages[0]["role"] == "system" else ""
    if tools:
        listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        system = (system + "\n\n" if system else "") + TOOLS_BEFORE + listed + TOOLS_AFTER
    if system:
        out.append(f"<|im_start|>system\n{system}<|im_end|>\n")
    last_query = max((i for i, m in enumerate(messages) if m["role"] == "user"), default=-1)
    for index, message in enumerate(messages):
        role, content = message["role"], message.get("content") or ""
        if role == "tool":
            first = index == 0 or messages[index - 1]["role"] != "tool"
            final = index + 1 == len(messages) or messages[index + 1]["role"] != "tool"
            out.append("<|im_start|>user" if first else "")
            out.append(f"\n<tool_response>\n{content}\n</tool_response>" + ("<|im_end|>\n" if final else ""))
            continue
        if role == "assistant":
            if index > last_query:
                content = f"<think>\n{message.get('reasoning_content', '')}\n</think>\n\n{content}"
            calls = [tool_call_text(call["function"]) for call in message.get("tool_calls", [])]
            if calls:
                content += ("\n\n" if message.get("content") else "") + "\n".join(calls)
        out.append(f"<|im_start|>{role}\n{content}<|im_end|>\n")
    return "".join(out)


def generation_prompt(thinking: bool) -> str:
    return "<|im_start|>assistant\n<think>\n" + ("" if thinking else "\n</think>\n\n")
