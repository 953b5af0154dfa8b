"""A conversation as the text that its model reads: the chat template of the model, and what may be put into it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strata.errors import RequestError
from strata.text import ChatTemplate, Tokenizer
from strata.text.calls import Tool
from strata.text.template import CHATML

if TYPE_CHECKING:
    from strata.server.generation import Ask

_RESERVED = ("messages", "add_generation_prompt", "tools")
_NO_THINKING = ("none", "off", "minimal", "disabled")
_EFFORTS = {"low": "low", "medium": "medium", "high": "xhigh", "xhigh": "xhigh", "max": "xhigh"}


def chat_template(tokenizer: Tokenizer) -> ChatTemplate | None:
    """The model's own template; the plain ChatML one for a file without, if it has ChatML's tokens; else None."""
    vocab = tokenizer.vocabulary
    source = vocab.chat_template
    if source is None and all(tokenizer.id_of(mark) is not None for mark in ("<|im_start|>", "<|im_end|>")):
        source = CHATML
    if source is None:
        return None
    bos, eos = ("" if number is None else vocab.tokens[number] for number in (vocab.bos_id, vocab.eos_id))
    return ChatTemplate(source, bos_token=bos, eos_token=eos, name=vocab.source)


def can_skip_thinking(template: ChatTemplate) -> bool:
    """Whether the template can be told not to think (also when it knows no thinking)."""
    return "<think>" not in template.source or "enable_thinking" in template.source


def render(template: ChatTemplate, tokenizer: Tokenizer, ask: "Ask", *, name: str) -> str:
    """The prompt of a conversation, control tokens in what users wrote quoted. Raises RequestError."""
    reserved = next((key for key in _RESERVED if key in ask.template_options), None)
    if reserved is not None:
        raise RequestError(f"chat_template_kwargs may not set {reserved!r}.")
    options = {**_thinking_options(ask, template, name), **ask.template_options}
    if ask.tools:
        if "tools" not in template.source:
            raise RequestError(f"{name} calls no tools: its chat template knows none; leave tools out.")
        options["tools"] = _quoted([_described(tool) for tool in ask.tools], tokenizer)
    return template.render(_quoted(conversation(ask.messages or ()), tokenizer), options=options)


def conversation(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages as templates expect them: one system message at most, first (a later one becomes the user's)."""
    result: list[dict[str, Any]] = []
    for message in messages:
        role = "system" if message["role"] == "developer" else message["role"]
        if role == "system" and result and (len(result) > 1 or result[0]["role"] != "system"):
            role = "user"
        if role == "system" and result:
            result[0]["content"] = f"{result[0]['content']}\n\n{message['content']}"
        else:
            result.append({**message, "role": role})
    return result


def _described(tool: Tool) -> dict[str, Any]:
    """A tool as templates take it."""
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}


def _quoted(value: Any, tokenizer: Tokenizer) -> Any:
    """A JSON value with the control tokens in all its texts, keys too, marked as mere text."""
    if isinstance(value, str):
        return tokenizer.quote(value)
    if isinstance(value, list | tuple):
        return [_quoted(inner, tokenizer) for inner in value]
    if isinstance(value, Mapping):
        return {tokenizer.quote(key): _quoted(inner, tokenizer) for key, inner in value.items()}
    return value


def _thinking_options(ask: "Ask", template: ChatTemplate, name: str) -> dict[str, Any]:
    """Effort and the thinking switch as template options; a template with a mere switch gets on or off."""
    options: dict[str, Any] = {}
    thinking = False if ask.thinking_budget == 0 else ask.thinking
    if ask.effort is not None:
        if ask.effort in _NO_THINKING:
            thinking = False if thinking is None else thinking
        elif ask.effort in _EFFORTS:
            options["reasoning_effort"] = _EFFORTS[ask.effort]
            thinking = True if thinking is None else thinking
        else:
            known = ", ".join((*_NO_THINKING, *_EFFORTS))
            raise RequestError(f"reasoning effort {ask.effort!r} is unknown; choose one of {known}.")
    if thinking is not None:
        if not thinking and not can_skip_thinking(template):
            raise RequestError(f"Thinking cannot be switched off: {name}'s chat template has no such switch.")
        options["enable_thinking"] = thinking
    return options
