"""A reply as it streams: token ids to complete characters, and stop strings that may lie across token borders."""

import codecs
from collections import deque
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

    An Aho-Corasick automaton (1975): one step a character, however many strings there are. Text is held back only
    while it may still be the beginning of a stop string. The string that is complete first wins, the longest of
    those that end at the same character.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise RequestError("A stop string may not be empty.")
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._match: list[str | None] = [None]
        self._fail = [0]
        for stop in stops:
            self._insert(stop)
        self._link()
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

    def _insert(self, stop: str) -> None:
        state = 0
        for character in stop:
            if character not in self._next[state]:
                self._next[state][character] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._match.append(None)
                self._fail.append(0)
            state = self._next[state][character]
        self._match[state] = stop

    def _link(self) -> None:
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for character, child in self._next[state].items():
                self._fail[child] = self._step(self._fail[state], character)
                if self._match[child] is None:
                    self._match[child] = self._match[self._fail[child]]
                queue.append(child)

    def _step(self, state: int, character: str) -> int:
        while state and character not in self._next[state]:
            state = self._fail[state]
        return self._next[state].get(character, 0)
