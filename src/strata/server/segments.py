"""A reply as parts that follow one another - thinking, text, calls - for the APIs that say a reply in such parts."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from strata.server.generation import End, Event
from strata.server.scores import ScoredPiece, TokenScore
from strata.text import Part, Piece
from strata.text.calls import CallArguments, CallClosed, CallOpened


class Kind(Enum):
    """What a segment holds."""

    THINKING = "thinking"
    TEXT = "text"
    CALL = "call"


@dataclass(slots=True)
class Segment:
    """One part. `text` of a call: the JSON text of its arguments. `whole`: a call that is not should not be made."""

    index: int
    kind: Kind
    call: CallOpened | None = None
    text: str = ""
    whole: bool = True
    scores: list[TokenScore] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Begun:
    """A segment begins; the one before it has ended."""

    segment: Segment


@dataclass(frozen=True, slots=True)
class Grown:
    """A segment has this text more, with the scores of the tokens that begin in it."""

    segment: Segment
    text: str
    scores: tuple[TokenScore, ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """A segment is complete, or will never be (`segment.whole`)."""

    segment: Segment


Change = Begun | Grown | Ended


class Segments:
    """Events in, changes out; `parts` are the segments so far.

    Blank text stands in no segment of its own, and none stands between a text and the call after it: such blanks
    belong to the format of calls.
    """

    def __init__(self) -> None:
        self.parts: list[Segment] = []
        self._open: Segment | None = None
        self._blank = ""
        self._scores: list[TokenScore] = []

    def all(self, events: Iterable[Event]) -> list[Segment]:
        """The segments of a whole reply, without calls that were cut off."""
        for event in events:
            self.push(event)
        return [part for part in self.parts if part.whole]

    def push(self, event: Event) -> list[Change]:
        """The changes that an event makes."""
        match event:
            case Piece(Part.REASONING, text):
                return self._grow(Kind.THINKING, text)
            case Piece(Part.ANSWER, text):
                return self._answer(text, event.scores if isinstance(event, ScoredPiece) else ())
            case CallOpened():
                self._forget()
                changes = [*self._end(), self._begin(Kind.CALL, event)]
                self.parts[-1].whole = False
                return changes
            case CallArguments():
                return self._grow(Kind.CALL, event.text)
            case CallClosed():
                self.parts[-1].whole = True
                return self._end()
            case End():
                if self._open is not None and self._open.kind is Kind.TEXT and self._blank:
                    return [*self._grow(Kind.TEXT, self._blank, tuple(self._scores)), *self._end()]
                return self._end()
        return []

    def _answer(self, text: str, scores: tuple[TokenScore, ...]) -> list[Change]:
        text = self._blank + text
        if self._open is None or self._open.kind is not Kind.TEXT:
            text = text.lstrip()
        self._scores += scores
        shown = text.rstrip()
        if not shown:
            self._blank = text
            return []
        due = tuple(self._scores)
        changes = self._grow(Kind.TEXT, shown, due)
        self._blank = text[len(shown) :]
        return changes

    def _grow(self, kind: Kind, text: str, scores: tuple[TokenScore, ...] = ()) -> list[Change]:
        self._forget()
        changes: list[Change] = []
        if self._open is None or self._open.kind is not kind:
            changes = [*self._end(), self._begin(kind)]
        segment = self.parts[-1]
        segment.text += text
        segment.scores += scores
        return [*changes, Grown(segment, text, scores)]

    def _begin(self, kind: Kind, call: CallOpened | None = None) -> Begun:
        self._open = Segment(len(self.parts), kind, call)
        self.parts.append(self._open)
        return Begun(self._open)

    def _end(self) -> list[Change]:
        ended, self._open = self._open, None
        return [] if ended is None else [Ended(ended)]

    def _forget(self) -> None:
        self._blank = ""
        self._scores = []
