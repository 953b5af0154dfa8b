"""Log-probabilities of a reply's tokens, brought out with the text that the tokens are part of."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from strata.text import Part, Piece


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A token with its natural log-probability, and those of the likeliest tokens at its place."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ScoredPiece(Piece):
    """Text of the answer with the scores of the tokens that begin in it, or in text that was held back before it."""

    scores: tuple[TokenScore, ...] = ()


class Scores:
    """Scores wait until the first character of their token is shown; those of a token that is never shown stay here."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, TokenScore]] = deque()
        self._skipped: list[tuple[int, TokenScore]] = []
        self._received = 0
        self._shown = 0

    def add(self, score: TokenScore, held: int = 0) -> None:
        """The next token: its text begins after all that was received, and so many characters that will be."""
        self._waiting.append((self._received + held, score))

    def drop(self) -> None:
        """What was added is no part of the answer: thinking, and blanks around its marks."""
        self._waiting.clear()

    def receive(self, text: str) -> None:
        """Text of the answer, before stop strings act."""
        self._received += len(text)

    def skip(self, count: int) -> None:
        """So many characters more of the answer will not be shown; if negative, some that were skipped will be."""
        self._shown += count
        while self._waiting and self._waiting[0][0] < self._shown:
            self._skipped.append(self._waiting.popleft())
        while self._skipped and self._skipped[-1][0] >= self._shown:
            self._waiting.appendleft(self._skipped.pop())

    def attach(self, pieces: Sequence[Piece]) -> list[Piece]:
        """The pieces that are shown now, the last of the answer's with the scores that are due."""
        self._shown += sum(len(piece.text) for piece in pieces if piece.part is Part.ANSWER)
        due = []
        while self._waiting and self._waiting[0][0] < self._shown:
            due.append(self._waiting.popleft()[1])
        result = list(pieces)
        if due:
            last = max(at for at, piece in enumerate(pieces) if piece.part is Part.ANSWER)
            result[last] = ScoredPiece(Part.ANSWER, pieces[last].text, tuple(due))
        return result
