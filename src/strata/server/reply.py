"""One reply as its tokens arrive: thinking, answer and tool calls apart, stop strings, and what the counters need."""

from collections.abc import Sequence

from strata.server.scores import Scores, TokenScore
from strata.text import Detokenizer, Part, Piece, ReasoningSplitter, StopStrings, Tokenizer
from strata.text.calls import CallArguments, CallClosed, CallOpened, Tool
from strata.text.reasoning import CLOSE, OPEN
from strata.text.tool_calls import ToolCallParser

Said = Piece | CallOpened | CallArguments | CallClosed


class Reply:
    """Tokens in, pieces of text and calls out. Stop strings act on the answer's text only: thinking may say anything.

    With `split` False (a raw prompt is continued) all text is answer; `thinking`: the prompt left a `<think>` open.
    `tools`: calls of these are told as calls; `one_call`: the reply is over after the first. `ids` are its tokens.
    """

    def __init__(
        self, tokenizer: Tokenizer, stop: Sequence[str], *, split: bool = True, thinking: bool = False,
        tools: Sequence[Tool] = (), one_call: bool = False,
    ) -> None:  # fmt: skip
        self._tokenizer = tokenizer
        self._text = Detokenizer(tokenizer)
        self._splitter = ReasoningSplitter(thinking) if split else None
        self._marks = (tokenizer.id_of(OPEN), tokenizer.id_of(CLOSE))
        self._calls = ToolCallParser(tools) if tools else None
        self._one_call = one_call
        self._stop = StopStrings(stop)
        self._scores = Scores()
        self._thought = thinking
        self._called = False
        self._format = 0
        self.ids: list[int] = []
        self.reasoning_tokens = 0
        self.repeats = 0
        """How often the last token has come in a row."""
        self.ended = False
        """Whether the reply is over although the engine may send more."""

    @property
    def stop_string(self) -> str | None:
        """The stop string that ended the reply."""
        return self._stop.matched

    @property
    def thinking(self) -> bool:
        """Whether what comes next belongs to the thinking."""
        return self._splitter is not None and self._splitter.thinking

    @property
    def called(self) -> bool:
        """Whether the reply's purpose is its calls: there is one, and the last is complete."""
        return self._called

    def push(self, token_id: int, score: TokenScore | None = None) -> list[Said]:
        """What this token completes."""
        self.repeats = self.repeats + 1 if self.ids and token_id == self.ids[-1] else 1
        self.ids.append(token_id)
        thinking = self.thinking
        self.reasoning_tokens += thinking
        held = 0 if self._splitter is None or thinking else self._splitter.held
        text = self._text.push(token_id)
        pieces = self._split(text, token_id)
        if score is not None:
            self._keep(score, held, text, pieces, thinking)
        return self._say(pieces)

    def finish(self, *, natural: bool) -> list[Said]:
        """What was held back, at the end of the reply; `natural`: the model ended it, no limit did."""
        if self.ended:
            return []
        said = self._say(self._splitter.finish() if self._splitter is not None else [])
        if self._calls is not None and not self.ended:
            said += self._through_stop(self._calls.finish(natural=natural))
        return said if self.ended else said + self._release()

    def _split(self, text: str, token_id: int) -> list[Piece]:
        if not text:
            return []
        if self._splitter is None:
            return [Piece(Part.ANSWER, text)]
        return self._splitter.push(text, None if None in self._marks else token_id in self._marks)

    def _keep(
        self, score: TokenScore, held: int, text: str, pieces: Sequence[Piece], was_thinking: bool
    ) -> None:
        """Keep a token's score if the token is part of the answer, or may turn out to be."""
        self._thought = self._thought or was_thinking or self.thinking
        answers = any(piece.part is Part.ANSWER for piece in pieces)
        blank_after_thinking = bool(text) and self._thought
        of_format = not answers and (was_thinking or self.thinking or blank_after_thinking)
        if of_format or was_thinking:
            self._scores.drop()
        if not of_format and not self._tokenizer.is_silent(score.id):
            self._scores.add(score, held)

    def _say(self, pieces: Sequence[Piece]) -> list[Said]:
        """The pieces of a reply, with the calls found in its answer."""
        said: list[Said] = []
        for piece in pieces:
            if piece.part is Part.ANSWER:
                self._scores.receive(piece.text)
                said += self._through_stop([piece] if self._calls is None else self._calls.push(piece.text))
            else:
                said.append(piece)
        return said

    def _through_stop(self, events: Sequence[Said]) -> list[Said]:
        """Events of the answer, up to what ends it."""
        said: list[Said] = []
        if self._calls is not None and self._calls.taken < self._format:
            self._skip()  # what was taken for a call is text after all
        for event in events:
            if isinstance(event, Piece):
                shown = self._stop.push(event.text)
                said += self._scores.attach([Piece(Part.ANSWER, shown)] if shown else [])
                self.ended = self._stop.matched is not None
            else:
                said += self._release() if isinstance(event, CallOpened) else []
                self._skip()
                said.append(event)
                self._called = isinstance(event, CallClosed)
                self.ended = self._one_call and isinstance(event, CallClosed)
            if self.ended:
                break
        self._skip()
        return said

    def _skip(self) -> None:
        """Scores of tokens that became calls are nobody's."""
        if self._calls is not None:
            self._scores.skip(self._calls.taken - self._format)
            self._format = self._calls.taken

    def _release(self) -> list[Said]:
        """Text that was held back and turned out to be the beginning of no stop string."""
        held = self._stop.finish()
        return [*self._scores.attach([Piece(Part.ANSWER, held)])] if held else []
