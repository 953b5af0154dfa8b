"""Follows a JSON value character by character (RFC 8259), so that it can be passed on while it is written."""

import json
import re

_BLANK = " \t\n\r"
_SCALAR = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false|null")
_LONGEST_SCALAR = 4000


class JsonScanner:
    """Feeds on the characters of one JSON object.

    `depth` is how many objects and arrays are open. Line breaks and other control characters inside of a string,
    which JSON forbids and models write, are passed on escaped.
    """

    def __init__(self) -> None:
        self.done = False
        self.broken = False
        self._open: list[str] = []
        self._expect = "object"
        self._scalar = ""
        self._is_key = False
        self._digits = 0

    @property
    def depth(self) -> int:
        return len(self._open)

    def step(self, character: str) -> str:
        """The next character: what is valid JSON in its place. Sets `done` with the last one, `broken` for a wrong one.

        A character that breaks the value is no part of it.
        """
        if self._expect == "string":
            return self._in_string(character)
        if self._expect == "escape":
            self._digits = 4 if character == "u" else 0
            self._go("hex" if character == "u" else "string", character in '"\\/bfnrtu')
        elif self._expect == "hex":
            self._digits -= 1
            self._go("hex" if self._digits else "string", character in "0123456789abcdefABCDEF")
        elif self._expect == "scalar" and character not in ",]}" + _BLANK:
            self._scalar += character
            self.broken = len(self._scalar) > _LONGEST_SCALAR
        else:
            if self._expect == "scalar":
                self._go("after", _SCALAR.fullmatch(self._scalar) is not None)
            if not self.broken and character not in _BLANK:
                self._structure(character)
        return character

    def _go(self, expect: str, right: bool = True) -> None:
        self._expect = expect
        self.broken = not right

    def _in_string(self, character: str) -> str:
        if character == '"':
            self._go("colon" if self._is_key else "after")
        elif character == "\\":
            self._go("escape")
        elif character < " ":
            return json.dumps(character)[1:-1]
        return character

    def _structure(self, character: str) -> None:
        expect = self._expect
        if expect == "object":
            self._begin("{", character == "{")
        elif expect in ("key", "first key") and character == '"':
            self._is_key = True
            self._go("string")
        elif expect == "colon":
            self._go("value", character == ":")
        elif expect in ("after", "first key", "first value") and character in "]}":
            self._end(character)
        elif expect == "after":
            self._go("key" if self._open[-1] == "{" else "value", character == ",")
        elif expect in ("value", "first value"):
            self._value(character)
        else:
            self.broken = True

    def _value(self, character: str) -> None:
        if character in "{[":
            self._begin(character)
        elif character == '"':
            self._is_key = False
            self._go("string")
        else:
            self._scalar = character
            self._go("scalar", character in "-0123456789tfn")

    def _begin(self, character: str, right: bool = True) -> None:
        self._open.append(character)
        self._go("first key" if character == "{" else "first value", right and len(self._open) <= 200)

    def _end(self, character: str) -> None:
        right = self._open.pop() + character in ("{}", "[]")
        self._go("after", right)
        self.done = right and not self._open
