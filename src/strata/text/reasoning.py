"""Splits a reply that streams into its thinking (`<think>...</think>`) and its answer."""

from dataclasses import dataclass
from enum import Enum

OPEN = "<think>"
CLOSE = "</think>"


class Part(Enum):
    """Which part of a reply a text belongs to."""

    REASONING = "reasoning"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text of one part of a reply."""

    part: Part
    text: str


def starts_inside(prompt: str) -> bool:
    """Whether a rendered prompt leaves the model inside its thinking: the last mark of the reply begun is `<think>`."""
    return prompt.rstrip().endswith(OPEN)


class _State(Enum):
    BEFORE = 0  # nothing but blanks so far: a <think> here opens the thinking
    THINKING_START = 1  # blanks right after <think> belong to the format
    THINKING = 2
    ANSWER_START = 3  # blanks right after </think> belong to the format
    ANSWER = 4


class ReasoningSplitter:
    """Feeds on pieces of a reply's text and gives them back with their part.

    Thinking is at most one block, at the start: a `<think>` after the answer has begun is text like any other, and so
    is a `</think>` outside the thinking. Blank text around the marks belongs to the format and is left out. Where the
    marks are tokens, only those are marks (`push` is told): a model that thinks about "</think>" spells it.
    """

    def __init__(self, inside: bool = False) -> None:
        self._state = _State.THINKING_START if inside else _State.BEFORE
        self._held = ""
        self._mark: bool | None = None

    @property
    def thinking(self) -> bool:
        """Whether the text that comes next belongs to the thinking."""
        return self._state in (_State.THINKING_START, _State.THINKING)

    @property
    def held(self) -> int:
        """Characters that wait for what follows them."""
        return len(self._held)

    def push(self, text: str, mark: bool | None = None) -> list[Piece]:
        """The pieces that this text completes (possibly none).

        `mark`: whether the text is a mark, known from its token. None: that has to be seen from the text.
        """
        self._mark = mark
        self._held += text
        pieces: list[Piece] = []
        while self._held and self._advance(pieces):
            pass
        return pieces

    def finish(self) -> list[Piece]:
        """What was held back at the end of the reply."""
        rest, self._held = self._held, ""
        if self._state in (_State.THINKING_START, _State.THINKING):
            rest = rest.rstrip()
            return [Piece(Part.REASONING, rest)] if rest else []
        if self._state is _State.ANSWER_START:
            rest = rest.lstrip()
        return [Piece(Part.ANSWER, rest)] if rest else []

    def _advance(self, pieces: list[Piece]) -> bool:
        """One step over the held text; False when more text is needed."""
        if self._state is _State.ANSWER:
            pieces.append(Piece(Part.ANSWER, self._held))
            self._held = ""
            return False
        if self._state is _State.THINKING:
            return self._think(pieces)
        stripped = self._held.lstrip()
        if self._state is _State.BEFORE:
            if stripped.startswith(OPEN) and self._mark is not False:
                self._held, self._state = stripped[len(OPEN) :], _State.THINKING_START
                return True
            if not stripped or (OPEN.startswith(stripped) and self._mark is None):
                return False
            self._state = _State.ANSWER
            return True
        self._held = stripped
        if not stripped:
            return False
        self._state = _State.THINKING if self._state is _State.THINKING_START else _State.ANSWER
        return True

    def _think(self, pieces: list[Piece]) -> bool:
        before, mark, after = self._held.partition(CLOSE)
        if mark and self._mark is not False:
            before = before.rstrip()
            if before:
                pieces.append(Piece(Part.REASONING, before))
            self._held, self._state = after, _State.ANSWER_START
            return True
        # Blanks before a possible </think> belong to the mark, so they wait for what follows.
        lengths = range(len(CLOSE) - 1, 0, -1) if self._mark is None else ()
        keep = next((n for n in lengths if self._held.endswith(CLOSE[:n])), 0)
        shown = self._held[: len(self._held) - keep].rstrip()
        if shown:
            pieces.append(Piece(Part.REASONING, shown))
            self._held = self._held[len(shown) :]
        return False
