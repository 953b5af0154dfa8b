"""Fields of a JSON body, taken with their place in it, so that what is wrong with one is said by name."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import msgspec

from strata.server.problem import FieldError
from strata.server.sampling import Sampling
from strata.text.calls import Tool, ToolChoice

T = TypeVar("T")
DEEPEST = 64
"""Levels that a value which is handed on as it is (a JSON schema, a call's arguments) may be nested."""
MOST_LOGPROBS = 20
BLIND = "[an image, which this model cannot see]"
"""What the model reads where a tool gave back an image."""
_TEXTS = ("text", "input_text", "output_text")
_IMAGES = ("image_url", "input_image")
_TOOL_NAME = re.compile(r"[^\s<>=]{1,256}")
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty",
             "repetition_penalty", "penalty_last_n")  # fmt: skip


class SamplingFields(msgspec.Struct):
    """How tokens are drawn. An API that knows only some of these still takes them all."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    penalty_last_n: int | None = None

    def sampling(self, defaults: Sampling) -> Sampling:
        """What the request leaves open is taken from `defaults`. A negative top_k means no limit."""
        given = {name: value for name in _SAMPLING if (value := getattr(self, name)) is not None}
        if "top_k" in given:
            given["top_k"] = max(given["top_k"], 0)
        return replace(defaults, **given)


def decode(body: bytes, kind: type[T]) -> T:
    """The request that a body holds. Raises FieldError."""
    return converted(json_object(body), kind)


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is. Raises FieldError."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.ValidationError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FieldError(f"The body is not a JSON object: {error}.", None) from None


def converted(fields: Mapping[str, Any], kind: type[T], *, indices: bool = True) -> T:
    """Fields as a request. Raises FieldError; its place ends before a list's index where `indices` is False."""
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `$")
        place = path.strip("`.")
        param = (place if indices else place.split("[")[0]) or None
        raise FieldError(f"{param}: {reason}." if param else f"{reason}.", param) from None


def top_logprobs(count: int | None) -> int:
    """How many of the likeliest tokens are told; none where a request says nothing. Raises FieldError."""
    top = count or 0
    if not 0 <= top <= MOST_LOGPROBS:
        raise FieldError(f"top_logprobs must be from 0 to {MOST_LOGPROBS}, not {top}.", "top_logprobs")
    return top


@dataclass(frozen=True, slots=True)
class Node:
    """A JSON object within a request, and its place, as in `messages[0].content[1]`."""

    value: Mapping[str, Any]
    path: str

    def wrong(self, said: str, name: str | None = None, code: str | None = None) -> FieldError:
        """The error that this object, or its field, `said` (a predicate: "must be a text")."""
        place = self.path if name is None else self.at(name)
        return FieldError(f"{place} {said}.", place, code)

    def at(self, name: str) -> str:
        """The place of a field."""
        return f"{self.path}.{name}"

    def text(self, name: str) -> str:
        """A field that must be a text."""
        value = self.value.get(name)
        if not isinstance(value, str):
            raise self.wrong("must be a text", name)
        return value

    def text_or(self, name: str, default: T) -> str | T:
        """A text, or the default for a field that is absent or null."""
        return default if self.value.get(name) is None else self.text(name)

    def one_of(self, name: str, words: Sequence[str]) -> str:
        """A text that is one of these words."""
        value = self.value.get(name)
        if not isinstance(value, str) or value not in words:
            raise self.wrong(f"must be one of {', '.join(words)}, not {_shown(value)}", name)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A field that is true or false, or the default for one that is absent or null."""
        value = self.value.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong("must be true or false", name)
        return value

    def node(self, name: str) -> "Node":
        """A field that must be an object."""
        value = self.value.get(name)
        if not isinstance(value, dict):
            raise self.wrong("must be an object", name)
        return Node(value, self.at(name))

    def nodes(self, name: str) -> "list[Node]":
        """A field that must be a list of objects."""
        value = self.value.get(name)
        if not isinstance(value, list):
            raise self.wrong("must be a list", name)
        return nodes(value, self.at(name))

    def json(self, name: str) -> dict[str, Any]:
        """A field that must be an object, handed on as it is. Raises FieldError when it is nested too deeply."""
        value = dict(self.node(name).value)
        if deeper(value, DEEPEST):
            raise self.wrong(f"is nested deeper than {DEEPEST} levels", name)
        return value


def nodes(values: Iterable[Any], path: str) -> list[Node]:
    """The objects of a list at `path`. Raises FieldError for an element that is none."""
    result = []
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise FieldError(f"{path}[{index}] must be an object.", f"{path}[{index}]")
        result.append(Node(value, f"{path}[{index}]"))
    return result


def arguments_of(function: Node) -> dict[str, Any]:
    """A past call's `arguments`. A text that is no JSON object is history like any other, and is shown as it was.

    Raises FieldError when they are nested too deeply.
    """
    text = function.text_or("arguments", "")
    try:
        arguments = msgspec.json.decode(text or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return {"arguments": text}
    if deeper(arguments, DEEPEST):
        raise function.wrong(f"is nested deeper than {DEEPEST} levels", "arguments")
    return arguments


def parts_text(holder: Node, name: str, *, blind: bool = False) -> str:
    """A text, or the texts of a list of parts. `blind`: an image is named to the model instead of being refused."""
    content = holder.value.get(name)
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise holder.wrong("must be a text or a list of parts", name)
    texts = []
    for part in nodes(content, holder.at(name)):
        kind = part.text("type")
        if kind in _TEXTS:
            texts.append(part.text("text"))
        elif kind == "refusal":
            texts.append(part.text("refusal"))
        elif kind in _IMAGES and blind:
            texts.append(BLIND)
        else:
            raise part.wrong(f"is {kind!r}, and this model reads text only", "type")
    return "".join(texts)


def check_tools(tools: Sequence[Tool], choice: ToolChoice) -> None:
    """Raises FieldError for names that cannot be told apart or written, and for a choice that cannot be met."""
    names = [tool.name for tool in tools]
    for index, name in enumerate(names):
        if not _TOOL_NAME.fullmatch(name):
            raise FieldError(
                f"tools[{index}].name must have 1 to 256 characters, none of them blank or '<', '>', '=', "
                f"not {_shown(name)}.",
                f"tools[{index}].name",
            )
        if name in names[:index]:
            raise FieldError(f"tools[{index}].name: {name!r} is there twice.", f"tools[{index}].name")
    if choice.mode == "required" and not tools:
        raise FieldError("tool_choice asks for a call, but there are no tools.", "tool_choice")
    if choice.mode == "named" and choice.name not in names:
        raise FieldError(f"tool_choice names {_shown(choice.name)}, which is not among the tools.", "tool_choice")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}..."


def deeper(value: Any, levels: int) -> bool:
    """Whether a JSON value is nested deeper than this; level by level, for it may be deeper than Python's own stack."""
    layer = [value]
    for _ in range(levels):
        layer = [
            inner
            for outer in layer
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not layer:
            return False
    return any(isinstance(inner, dict | list) for inner in layer)
