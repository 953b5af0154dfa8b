"""One reply as its tokens arrive: text, thinking and answer apart, stop strings, and what the counters need."""

from collections.abc import Sequence

from strata.server.scores import Scores, TokenScore
from strata.text import Detokenizer, Part, Piece, ReasoningSplitter, StopStrings, Tokenizer


class Reply:
    """Tokens in, pieces of text out. Stop strings act on the answer only: thinking may say anything.

    With `split` False (a raw prompt is continued) all text is answer; `thinking`: the prompt left a `<think>` open.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str], *, split: bool = True, thinking: bool = False
    ) -> None:
        self._tokenizer = tokenizer
        self._text = Detokenizer(tokenizer)
        self._splitter = ReasoningSplitter(thinking) if split else None
        self._stop = StopStrings(stop)
        self._scores = Scores()
        self._thought = thinking
        self._last = -1
        self.tokens = 0
        self.reasoning_tokens = 0
        self.repeats = 0
        """How often the last token has come in a row."""
        self.ended = False
        """Whether the reply is over although the engine may send more."""

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the reply."""
        return self._stop.matched

    def push(self, token_id: int, score: TokenScore | None = None) -> list[Piece]:
        """The pieces of text that this token completes."""
        self.tokens += 1
        self.repeats = self.repeats + 1 if token_id == self._last else 1
        self._last = token_id
        thinking = self._thinking
        self.reasoning_tokens += thinking
        text = self._text.push(token_id)
        pieces = self._split(text)
        if score is not None:
            self._keep(score, text, pieces, thinking)
        return self._through_stop(pieces)

    def finish(self) -> list[Piece]:
        """What was held back, at the end of the reply."""
        shown = self._through_stop(self._splitter.finish() if self._splitter is not None else [])
        if self._stop.matched is None and (held := self._stop.finish()):
            shown += self._scores.attach([Piece(Part.ANSWER, held)])
        return shown

    @property
    def _thinking(self) -> bool:
        return self._splitter is not None and self._splitter.thinking

    def _split(self, text: str) -> list[Piece]:
        if not text:
            return []
        return self._splitter.push(text) if self._splitter is not None else [Piece(Part.ANSWER, text)]

    def _keep(self, score: TokenScore, text: str, pieces: Sequence[Piece], was_thinking: bool) -> None:
        """Keep a token's score if the token is part of the answer, or may turn out to be."""
        self._thought = self._thought or was_thinking or self._thinking
        answers = any(piece.part is Part.ANSWER for piece in pieces)
        blank_after_thinking = bool(text) and self._thought
        of_format = not answers and (was_thinking or self._thinking or blank_after_thinking)
        if of_format or was_thinking:
            self._scores.drop()
        if not of_format and not self._tokenizer.is_silent(score.id):
            self._scores.add(score)

    def _through_stop(self, pieces: Sequence[Piece]) -> list[Piece]:
        shown = []
        for piece in pieces:
            text = piece.text
            if piece.part is Part.ANSWER:
                self._scores.receive(text)
                text = self._stop.push(text)
            if text:
                shown.append(Piece(piece.part, text))
        self.ended = self.ended or self._stop.matched is not None
        return self._scores.attach(shown)
