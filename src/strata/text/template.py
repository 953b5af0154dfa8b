"""A model's own chat template, rendered by jinja2 in a sandbox with bounded time and size.

Templates come with model files, so they are foreign code: they see no Python objects but the values given, change
nothing, and end with an error when they compute too long or write too much. The names available to them are those
that templates are written against: `tojson`, `raise_exception`, `strftime_now`, loop controls, `{% generation %}`.
"""

import json
import math
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from strata.errors import RequestError, WeightsError

SECONDS = 5.0
"""Longest time that one rendering may take."""
CHARACTERS = 64 * 2**20
"""Longest text that a template may write; also the largest number it may give to a function or repeat a text by."""

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The plain format of `<|im_start|>` and `<|im_end|>`, for models whose file has these tokens and no template."""


_WIDE = re.compile(r"%[^%a-zA-Z]*([0-9]{5}|\*)")


class _Refused(Exception):
    """Raised by the template itself, through raise_exception."""


class _GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` marks replies for training masks: rendered as its content."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    """The immutable sandbox, with a clock that every attribute, call and repeated operation looks at."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._clock = threading.local()

    def start_clock(self) -> None:
        """The rendering of this thread begins."""
        self._clock.deadline = time.monotonic() + SECONDS

    def getattr(self, obj: Any, attribute: str) -> Any:
        self.check_time()
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        self.check_time()
        return super().getitem(obj, argument)

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        __self.check_time()
        if any(isinstance(value, int) and abs(value) > CHARACTERS for value in (*args, *kwargs.values())):
            raise SecurityError("a number given to a function is too large")
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.check_time()
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "**" and (not numbers or abs(left) > 1e9 or abs(right) > 64):
            raise SecurityError("a power is too large")
        if operator == "*" and not numbers:
            sizes = [len(value) if hasattr(value, "__len__") else int(value) for value in (left, right)]
            if sizes[0] * sizes[1] > CHARACTERS:
                raise SecurityError("a repeated text is too long")
        if operator == "%" and isinstance(left, str) and _WIDE.search(left):
            raise SecurityError("a width in a % format is too large")
        return super().call_binop(context, operator, left, right)

    def check_time(self) -> None:
        """Raises SecurityError when the rendering of this thread has taken too long."""
        if time.monotonic() > getattr(self._clock, "deadline", math.inf):
            raise SecurityError(f"it took longer than {SECONDS:g} s")


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None,
            separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise _Refused(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(value: Any, *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(number, int) and abs(number) > 10_000 for number in (*args, *kwargs.values())):
            raise SecurityError("a width given to a filter is too large")
        return function(value, *args, **kwargs)

    return call


def _format(form: str, *args: Any, **kwargs: Any) -> str:
    if _WIDE.search(form):
        raise SecurityError("a width in a % format is too large")
    return form % (kwargs or args)


def _environment() -> _Sandbox:
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, "jinja2.ext.loopcontrols"]
    )
    for name in ("center", "indent", "wordwrap", "batch", "slice", "round"):
        environment.filters[name] = _bounded(environment.filters[name])
    environment.filters["format"] = _format
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class ChatTemplate:
    """One template, compiled once; `render` may be called any number of times, from any thread.

    Raises WeightsError when the source is no valid template.
    """

    def __init__(self, source: str, *, bos_token: str = "", eos_token: str = "", name: str = "the model file") -> None:
        self.source = source
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}
        self._environment = _environment()
        try:
            self._template = self._environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise WeightsError(
                f"{name}: the chat template is not valid at line {error.lineno}: {error.message}"
            ) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt for a conversation. `options` are further names for the template (`tools`, `enable_thinking`).

        Raises RequestError when the template refuses the messages, fails on them, or exceeds its bounds.
        """
        values = {
            **self._tokens,
            **(options or {}),
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
        }
        self._environment.start_clock()
        parts: list[str] = []
        size = 0
        try:
            for part in self._template.generate(values):
                size += len(part)
                if size > CHARACTERS:
                    raise SecurityError(f"it wrote more than {CHARACTERS} characters")
                self._environment.check_time()
                parts.append(part)
        except _Refused as error:
            raise RequestError(f"The model's chat template refuses these messages: {error}") from None
        except RecursionError:
            raise RequestError("The model's chat template failed on these messages: it is nested too deeply.") from None
        except Exception as error:  # foreign code: whatever it raises is about the messages or the template
            raise RequestError(f"The model's chat template failed on these messages: {error}.") from None
        return "".join(parts)
