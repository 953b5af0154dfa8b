"""One reply as its tokens arrive: text, thinking and answer apart, stop strings, and what the counters need."""

from collections.abc import Iterable, Sequence

from strata.text import Detokenizer, Part, Piece, ReasoningSplitter, StopStrings, Tokenizer


class Reply:
    """Tokens in, pieces of text out. Stop strings act on the answer only: thinking may say anything.

    With `split` False (a raw prompt is continued) all text is answer; `thinking`: the prompt left a `<think>` open.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str], *, split: bool = True, thinking: bool = False
    ) -> None:
        self._text = Detokenizer(tokenizer)
        self._splitter = ReasoningSplitter(thinking) if split else None
        self._stop = StopStrings(stop)
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

    def push(self, token_id: int) -> list[Piece]:
        """The pieces of text that this token completes."""
        self.tokens += 1
        self.repeats = self.repeats + 1 if token_id == self._last else 1
        self._last = token_id
        thinking = self._splitter is not None and self._splitter.thinking
        self.reasoning_tokens += thinking
        return self._shown(self._text.push(token_id))

    def finish(self) -> list[Piece]:
        """What was held back, at the end of the reply."""
        rest = self._splitter.finish() if self._splitter is not None else []
        pieces = self._through_stop(rest)
        if self._stop.matched is None and (held := self._stop.finish()):
            pieces.append(Piece(Part.ANSWER, held))
        return pieces

    def _shown(self, text: str) -> list[Piece]:
        if not text:
            return []
        return self._through_stop(self._splitter.push(text) if self._splitter else [Piece(Part.ANSWER, text)])

    def _through_stop(self, pieces: Iterable[Piece]) -> list[Piece]:
        shown = []
        for piece in pieces:
            text = self._stop.push(piece.text) if piece.part is Part.ANSWER else piece.text
            if text:
                shown.append(Piece(piece.part, text))
        self.ended = self.ended or self._stop.matched is not None
        return shown
