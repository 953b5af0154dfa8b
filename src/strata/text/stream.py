"""A reply as it streams: token ids to complete characters, and stop strings that may lie across token borders."""

import codecs
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from strata.errors import RequestError
from strata.text.tokenizer import Tokenizer


class Detokenizer:
    """Token ids, one at a time, to text that never ends inside a character.

    Bytes that cannot be part of any character come out as U+FFFD, as `bytes.decode(errors="replace")` writes them.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    @property
    def inside_character(self) -> bool:
        """Whether the bytes so far end inside a character."""
        return bool(self._decoder.getstate()[0])

    def push(self, token_id: int) -> str:
        """The text that this token completes: may be empty. Control tokens have none."""
        if self._tokenizer.is_silent(token_id):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))


class StopStrings:
    """Ends a text at the first of any number of stop strings; the stop string itself is not part of the text.

    An Aho-Corasick automaton (1975) whose states are made when a text first comes to them: one step a character,
    however many strings there are, and memory for the text that was seen, not for all that strings could say. A state
    is a beginning of stop strings: those from `low` to `high` of the sorted ones. Text is held back only while it may
    still be the beginning of a stop string. The string that is complete first wins, the longest of those that end at
    the same character.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise RequestError("A stop string may not be empty.")
        self._stops = sorted(dict.fromkeys(stops))
        self._range = [(0, len(self._stops))]
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._match: list[str | None] = [None]
        self._fail: list[int | None] = [0]
        self._state = 0
        self._held = ""
        self.matched: str | None = None
        """The stop string that ended the text."""

    def push(self, text: str) -> str:
        """The part of the text so far that can be shown now. After a match (`matched` is set) nothing follows."""
        if self.matched is not None:
            return ""
        for index, character in enumerate(text):
            self._state = self._step(self._state, character)
            stop = self._match[self._state]
            if stop is not None:
                self.matched = stop
                shown = self._held + text[: index + 1]
                self._held = ""
                return shown[: len(shown) - len(stop)]
        waiting = self._held + text
        cut = len(waiting) - self._depth[self._state]
        self._held = waiting[cut:]
        return waiting[:cut]

    def finish(self) -> str:
        """What was held back and, at the end of the text, turned out to be no stop string; a new text may follow."""
        rest, self._held = self._held, ""
        self._state = 0
        return rest

    def _step(self, state: int, character: str) -> int:
        """The state of the longest beginning that the text with this character ends with."""
        new = []  # states without a `_fail` yet, each that of the one before it
        while True:
            found = self._child(state, character)
            if found is not None and self._fail[found] is None:
                new.append(found)
            elif found is not None or not state:
                break
            state = self._fail[state] or 0
        at = found or 0
        for one in reversed(new):
            self._fail[one] = at
            self._match[one] = self._match[one] or self._match[at]
            at = one
        return at

    def _child(self, state: int, character: str) -> int | None:
        """The state that one character more leads to, where any string goes on with it."""
        known = self._next[state].get(character)
        if known is not None:
            return known
        depth, (low, high) = self._depth[state], self._range[state]
        if low < high and len(self._stops[low]) == depth:
            low += 1
        low = bisect_left(self._stops, character, low, high, key=lambda stop: stop[depth])
        high = bisect_right(self._stops, character, low, high, key=lambda stop: stop[depth])
        if low == high:
            return None
        first = self._stops[low]
        self._next[state][character] = len(self._next)
        self._next.append({})
        self._range.append((low, high))
        self._depth.append(depth + 1)
        self._match.append(first if len(first) == depth + 1 else None)
        self._fail.append(None if state else 0)
        return self._next[state][character]
