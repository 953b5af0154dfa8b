"""Tool calls in a reply that streams: text in, text and calls out, each call while it is still being written.

Two forms, both of the Qwen family (their chat templates show them to the model):

    <tool_call>
    <function=NAME>
    <parameter=P>
    VALUE
    </parameter>
    </function>
    </tool_call>

and `<tool_call>{"name": "NAME", "arguments": {...}}</tool_call>`. What the events are does not depend on how the text
is cut into pieces. A `</parameter>` ends its value only where the next `<parameter=` or a `</function>` follows: a
value may be a text about tool calls. A call may also lack its `<tool_call>`, if the function is known; and several may
follow each other with or without anything between them.
"""

import json
import re
import uuid
from collections.abc import Callable, Sequence

from strata.text.argument_values import ArgumentTypes, is_text, value_text
from strata.text.calls import CallArguments, CallClosed, CallOpened, Tool
from strata.text.json_scan import JsonScanner
from strata.text.reasoning import Part, Piece

CallEvent = Piece | CallOpened | CallArguments | CallClosed

OPEN = "<tool_call>"
CLOSE = "</tool_call>"
FUNCTION = "<function="
PARAMETER = "<parameter="
_END_PARAMETER = "</parameter>"
_END_FUNCTION = "</function>"
_AFTER_VALUE = (PARAMETER, _END_FUNCTION)
_JSON_HEAD = re.compile(r'\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)+")\s*,\s*"(?:arguments|parameters)"\s*:\s*\{')
_LONGEST_NAME = 256


def new_call_id() -> str:
    """An id that no other call has."""
    return f"call_{uuid.uuid4().hex[:24]}"


def is_xml(template: str) -> bool:
    """Which form a chat template teaches: XML (also if it teaches none), or JSON."""
    return FUNCTION in template or OPEN not in template


def opening(template: str, name: str | None) -> str:
    """How a reply begins that has to call a tool (`name`: this one), in the form that a chat template teaches.

    It ends where a token ends, whatever comes next: a cut inside of a token would be a text the model never saw.
    """
    if is_xml(template):
        return f"{OPEN}\n{FUNCTION}{name}>\n" if name is not None else f"{OPEN}\n{FUNCTION[:-1]}"
    return f'{OPEN}\n{{"name": {json.dumps(name)}, "arguments":' if name is not None else f'{OPEN}\n{{"name":'


class ToolCallParser:
    """Feeds on the answer of one reply; `tools` are those that the model was told of, with their schemas."""

    def __init__(self, tools: Sequence[Tool], new_id: Callable[[], str] = new_call_id) -> None:
        self._types = ArgumentTypes(tuple(tools))
        self._new_id = new_id
        self._starts = (OPEN, *(f"{FUNCTION}{tool.name}>" for tool in tools))
        self._start = re.compile("|".join(map(re.escape, self._starts)))
        self._state: Callable[[list[CallEvent]], bool] = self._in_text
        self._held = ""
        self._raw: list[str] = []
        self._name = ""
        self._opened = False
        self._after_call = False
        self._first = True
        self._argument = frozenset[str]()
        self._scan = JsonScanner()
        self._object: list[str] = []
        self.calls = 0
        """Calls opened so far."""
        self.taken = 0
        """Characters of the answer that became calls, or are the format around them."""

    def push(self, text: str) -> list[CallEvent]:
        """The events that this text completes (possibly none)."""
        self._held += text
        events: list[CallEvent] = []
        while self._held and self._state(events):
            pass
        return events

    def finish(self, *, natural: bool = True) -> list[CallEvent]:
        """What was held back, at the end of the reply; `natural`: the model ended it, no limit did.

        A call that was not begun enough to be told comes out as text; one that lacks nothing but its last marks is
        complete if the model ended there; any other has been cut off, and is text if the model did that itself.
        """
        events: list[CallEvent] = []
        if self._state == self._behind_call:
            if not CLOSE.startswith(self._held):
                _say(events, self._held)
        elif self._state == self._in_text:
            _say(events, self._held)
        elif not self._opened:
            _say(events, "".join(self._raw) + self._held)
        elif natural and self._ends_here():
            self._complete(events)
        elif natural:
            self._break(events)
            _say(events, self._held)
        self._held = ""
        return events

    def _in_text(self, events: list[CallEvent]) -> bool:
        if self._after_call:
            self._held = self._without_blanks()
            if not self._held:
                return False
        found = self._start.search(self._held)
        end = found.start() if found else len(self._held) - _partial(self._held, self._starts)
        shown = self._held[:end].rstrip()
        if shown:
            self._after_call = False
            _say(events, shown)
        if found is None:
            self._held = self._held[len(shown) :]
            return False
        wrapped = found.group() == OPEN
        self._begin(self._head if wrapped else self._function_name)
        self._raw = [self._held[len(shown) : found.start()]]
        self._held = self._held[found.start() :]
        self._consume(len(OPEN) if wrapped else len(FUNCTION))
        return True

    def _begin(self, state: Callable[[list[CallEvent]], bool]) -> None:
        self._state = state
        self._raw, self._object = [], []
        self._opened, self._first = False, True

    def _head(self, events: list[CallEvent]) -> bool:
        match self._expect(FUNCTION, "{"):
            case None:
                return False
            case "{":
                self._state, self._scan, self._object = self._in_object, JsonScanner(), []
            case mark if mark:
                self._consume(len(mark))
                self._state = self._function_name
            case _:
                self._break(events)
        return True

    def _function_name(self, events: list[CallEvent]) -> bool:
        name = self._until_bracket(events)
        if name is not None:
            self._name = name
            self._state = self._after_name
        return name is not None or self._state == self._in_text

    def _after_name(self, events: list[CallEvent]) -> bool:
        mark = self._expect(*_AFTER_VALUE)
        if mark is None:
            return False
        if not mark:
            self._break(events)
            return True
        if not self._opened:
            self._open(events, self._name)
        self._consume(len(mark))
        if mark == PARAMETER:
            self._state = self._parameter_name
        else:
            self._complete(events)
        return True

    def _parameter_name(self, events: list[CallEvent]) -> bool:
        name = self._until_bracket(events)
        if name is None:
            return self._state == self._in_text
        self._argument = self._types.of(self._name, name)
        quote = '"' if is_text(self._argument) else ""
        self._tell(events, f"{'{' if self._first else ', '}{json.dumps(name, ensure_ascii=False)}: {quote}")
        self._first = False
        self._state = self._value_start
        return True

    def _value_start(self, events: list[CallEvent]) -> bool:
        if self._held == "\r":
            return False
        self._consume(2 if self._held.startswith("\r\n") else int(self._held.startswith("\n")))
        self._state = self._value
        return True

    def _value(self, events: list[CallEvent]) -> bool:
        size, ended = _value_end(self._held)
        if is_text(self._argument):
            self._tell(events, json.dumps(self._consume(size), ensure_ascii=False)[1:-1])
        if ended:
            self._end_value(events, size)
        return ended

    def _end_value(self, events: list[CallEvent], size: int) -> None:
        """The value is what is still held of it; its `</parameter>` follows."""
        if is_text(self._argument):
            self._tell(events, '"')
        else:
            self._tell(events, value_text(self._consume(size), self._argument))
        self._consume(self._held.index(_END_PARAMETER) + len(_END_PARAMETER))
        self._state = self._after_name

    def _in_object(self, events: list[CallEvent]) -> bool:
        piece = ""
        for count, character in enumerate(self._held, 1):
            before = self._scan.depth
            passed = self._scan.step(character)
            if self._scan.broken:
                self._consume(count - 1)
                self._tell(events, piece)
                self._break(events)
                return True
            self._object.append(passed)
            if before == 1 and self._scan.depth == 2 and not self._opened:
                head = _JSON_HEAD.fullmatch("".join(self._object))
                if head is not None:
                    self._open(events, json.loads(head.group(1)))
            if self._opened and self._first:
                piece += passed
                self._first = self._scan.depth > 1
            if self._scan.done:
                self._consume(count)
                self._tell(events, piece)
                self._end_object(events)
                return True
        self._consume(len(self._held))
        self._tell(events, piece)
        return False

    def _end_object(self, events: list[CallEvent]) -> None:
        if not self._opened:
            found = _name_and_arguments("".join(self._object))
            if found is None:
                self._break(events)
                return
            self._open(events, found[0])
            self._tell(events, found[1])
        self._complete(events)

    def _behind_call(self, events: list[CallEvent]) -> bool:
        self._held = self._without_blanks()
        marks = (CLOSE, FUNCTION, "{") if self._object else (CLOSE, FUNCTION)
        mark = self._expect(*marks) if self._held else None
        if mark is None:
            return False
        if mark == CLOSE:
            self._held = self._held[len(CLOSE) :]
            self.taken += len(CLOSE)
        if mark in (FUNCTION, "{"):
            self._begin(self._head)
        else:
            self._state = self._in_text
        return True

    def _open(self, events: list[CallEvent], name: str) -> None:
        self._opened, self._name = True, name
        self.taken += sum(map(len, self._raw))
        events.append(CallOpened(self.calls, self._new_id(), name))
        self.calls += 1

    def _tell(self, events: list[CallEvent], text: str) -> None:
        if text:
            events.append(CallArguments(self.calls - 1, text))

    def _ends_here(self) -> bool:
        """Whether the call lacks nothing but its last marks."""
        if self._state == self._in_object:
            return not self._first
        if self._state != self._value:
            return False
        size, _ = _value_end(self._held)
        return self._held[size:].lstrip().startswith(_END_PARAMETER)

    def _complete(self, events: list[CallEvent]) -> None:
        if self._state == self._value:
            self._end_value(events, _value_end(self._held)[0])
        if not self._object:
            self._tell(events, "{}" if self._first else "}")
        events.append(CallClosed(self.calls - 1))
        self._after_call = True
        self._state = self._behind_call

    def _break(self, events: list[CallEvent]) -> None:
        """This is no call: what was taken for one is text."""
        if self._opened:
            self.taken -= sum(map(len, self._raw))
        _say(events, "".join(self._raw))
        self._after_call = False
        self._state = self._in_text

    def _consume(self, count: int) -> str:
        text, self._held = self._held[:count], self._held[count:]
        self._raw.append(text)
        if self._opened:
            self.taken += len(text)
        return text

    def _without_blanks(self) -> str:
        stripped = self._held.lstrip()
        self.taken += len(self._held) - len(stripped)
        return stripped

    def _expect(self, *marks: str) -> str | None:
        """Which of the marks comes next after blanks; "" for none, None while that is open."""
        blanks = len(self._held) - len(self._held.lstrip())
        ahead = self._held[blanks:]
        found = next((mark for mark in marks if ahead.startswith(mark)), None)
        if found is not None:
            self._consume(blanks)
            return found
        return None if any(mark.startswith(ahead) for mark in marks) else ""

    def _until_bracket(self, events: list[CallEvent]) -> str | None:
        """The name up to a `>`; None when it is not complete, or is none (then the call is broken)."""
        end = self._held.find(">")
        name = self._held if end < 0 else self._held[:end]
        if len(name) > _LONGEST_NAME or re.search(r"[<\n]", name) or (end >= 0 and not name.strip()):
            self._break(events)
            return None
        if end < 0:
            return None
        self._consume(end + 1)
        return name.strip()


def _say(events: list[CallEvent], text: str) -> None:
    if text:
        events.append(Piece(Part.ANSWER, text))


def _partial(text: str, marks: Sequence[str]) -> int:
    """Length of the longest end of `text` that could be the beginning of a mark."""
    longest = min(len(text), max(map(len, marks)) - 1)
    return next((n for n in range(longest, 0, -1) if any(mark.startswith(text[-n:]) for mark in marks)), 0)


def _value_end(text: str) -> tuple[int, bool]:
    """How much of `text` is surely value, and whether the value ends there."""
    at = text.find(_END_PARAMETER)
    while at >= 0:
        after = text[at + len(_END_PARAMETER) :].lstrip()
        if after.startswith(_AFTER_VALUE):
            return _before_line_break(text, at), True
        if any(mark.startswith(after) for mark in _AFTER_VALUE):
            return _before_line_break(text, at), False
        at = text.find(_END_PARAMETER, at + 1)
    return _before_line_break(text, len(text) - _partial(text, (_END_PARAMETER,))), False


def _before_line_break(text: str, at: int) -> int:
    """The place before the one line break that belongs to a mark at `at`, or may."""
    if text.endswith("\n", 0, at):
        return at - 2 if text.endswith("\r\n", 0, at) else at - 1
    return at - 1 if at == len(text) and text.endswith("\r") else at


def _name_and_arguments(text: str) -> tuple[str, str] | None:
    """Name and arguments (as JSON text) of a call whose keys come in another order; None if it is no call."""
    value = json.loads(text)
    name, arguments = value.get("name"), value.get("arguments", value.get("parameters", {}))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    if not (isinstance(name, str) and name and isinstance(arguments, dict)):
        return None
    return name, json.dumps(arguments, ensure_ascii=False)
