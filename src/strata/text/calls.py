"""Tool calls as every API sees them: what may be called, and a reply's calls as they stream."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call; `parameters` is the JSON schema of its arguments' object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """`mode`: auto (the model decides), none, required (at least one call), or named (`name` is called)."""

    mode: str = "auto"
    name: str | None = None
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class CallOpened:
    """The reply begins its call number `index`."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the JSON text of a call's arguments; the pieces of a call together are one JSON object."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallClosed:
    """Call number `index` is complete. One that never closes was cut off or broken: nothing that should be called."""

    index: int
