"""The OpenAI form of completions, which continue a prompt as it is.

https://platform.openai.com/docs/api-reference/completions
"""

from collections.abc import Mapping, Sequence
from typing import Any

from strata.server.fields import converted, json_object
from strata.server.generation import Ask, End, Event
from strata.server.openai import NEUTRAL, OpenAIRequest, choices, refuse, sampling_of, stops
from strata.server.openai_answer import LEAST_LOGPROB, ChoicesAnswer
from strata.server.problem import FieldError
from strata.server.reply import Said
from strata.server.sampling import Sampling
from strata.server.scores import ScoredPiece, TokenScore
from strata.server.sse import data
from strata.server.structured import grammar_of
from strata.text import Piece, Tokenizer
from strata.text.grammar import Grammar

_NEUTRAL: Mapping[str, Sequence[Any]] = {**NEUTRAL, "suffix": ("",), "tools": ([],)}
_MOST_LOGPROBS = 5
_MOST_PROMPTS = 128
_MOST_REPLIES = 1024
_DEFAULT_TOKENS = 16


class CompletionRequest(OpenAIRequest, kw_only=True):
    """The implemented fields of POST /v1/completions, but for those that ask for a grammar."""

    prompt: str | list[Any] | None = None
    logprobs: int | None = None
    echo: bool | None = None
    best_of: int | None = None


def parse(body: bytes) -> tuple[CompletionRequest, Grammar | None]:
    """A request from its JSON body, and the grammar that it asks for. Raises FieldError."""
    fields = json_object(body)
    refuse(fields, _NEUTRAL)
    request = converted(fields, CompletionRequest, indices=False)
    if request.best_of not in (None, 1, request.n):
        raise FieldError("best_of is not implemented by this server; leave it out.", "best_of", "unsupported_parameter")
    if request.logprobs is not None and not 0 <= request.logprobs <= _MOST_LOGPROBS:
        raise FieldError(f"logprobs must be from 0 to {_MOST_LOGPROBS}, not {request.logprobs}.", "logprobs")
    if request.logprobs is not None and request.echo:
        raise FieldError("echo with logprobs is not implemented: a prompt's tokens have none here.", "echo",
                         "unsupported_value")  # fmt: skip
    return request, grammar_of(fields)


def prompts_of(request: CompletionRequest) -> list[str | list[int]]:
    """The prompts: texts, or lists of token ids. Raises FieldError."""
    given = request.prompt
    if isinstance(given, str):
        return [given]
    if given and all(_is_id(number) for number in given):
        return [given]
    if not given or len(given) > _MOST_PROMPTS:
        raise FieldError(f"prompt must be a text, token ids, or a list of 1 to {_MOST_PROMPTS} of them.", "prompt")
    for index, one in enumerate(given):
        if not (isinstance(one, str) or (isinstance(one, list) and one and all(_is_id(number) for number in one))):
            raise FieldError(f"prompt[{index}] must be a text or a list of token ids.", "prompt")
    return given


def to_asks(request: CompletionRequest, defaults: Sampling, grammar: Grammar | None) -> list[Ask]:
    """The replies that are asked for: `n` to each prompt, prompt by prompt. Raises FieldError."""
    asks: list[Ask] = []
    prompts = prompts_of(request)
    if (replies := len(prompts) * (request.n or 1)) > _MOST_REPLIES:
        raise FieldError(
            f"{len(prompts)} prompts with n {request.n} are {replies} replies; at most {_MOST_REPLIES} in one request.",
            "n",
        )
    for prompt in prompts:
        ask = Ask(
            prompt=prompt,
            sampling=sampling_of(request, defaults),
            max_tokens=_DEFAULT_TOKENS if request.max_tokens is None else request.max_tokens,
            stop=stops(request.stop),
            logprobs=request.logprobs,
            grammar=grammar,
            progress=bool(request.return_progress),
        )
        asks += choices(ask, request.n)
    return asks


class CompletionAnswer(ChoicesAnswer):
    """Replies of /v1/completions; `echoes`: what stands before each, the prompt or nothing."""

    prefix, whole_kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, model: str, tokenizer: Tokenizer, *, echoes: Sequence[str], **options: Any) -> None:
        super().__init__(model, tokenizer, count=len(echoes), **options)
        self._echoes = echoes
        self._told = [0] * len(echoes)

    def opening(self) -> bytes:
        return b"".join(
            data(self._chunk(index, {"text": echo})) for index, echo in enumerate(self._echoes) if echo
        )

    def _nothing(self) -> Mapping[str, Any]:
        return {"text": ""}

    def _part(self, index: int, event: Said) -> dict[str, Any]:
        assert isinstance(event, Piece)  # a prompt that is continued has neither thinking nor calls
        return self._chunk(index, {"text": event.text}, logprobs=self._logprobs(index, [event]))

    def _choice(self, index: int, reply: Sequence[Event]) -> dict[str, Any]:
        end = reply[-1]
        assert isinstance(end, End)
        pieces = [event for event in reply if isinstance(event, Piece)]
        text = self._echoes[index] + "".join(piece.text for piece in pieces)
        return {
            "index": index, "text": text, "logprobs": self._logprobs(index, pieces), "finish_reason": end.finish,
        }  # fmt: skip

    def _logprobs(self, index: int, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        """Log-probabilities in four lists; offsets count the reply's characters."""
        if not self._scored:
            return None
        scores = [score for piece in pieces if isinstance(piece, ScoredPiece) for score in piece.scores]
        offsets = []
        for score in scores:
            offsets.append(self._told[index])
            self._told[index] += len(self._text(score.id))
        return {
            "tokens": [self._text(score.id) for score in scores],
            "token_logprobs": [max(score.logprob, LEAST_LOGPROB) for score in scores],
            "top_logprobs": [self._top(score) for score in scores],
            "text_offset": offsets,
        }

    def _top(self, score: TokenScore) -> dict[str, float]:
        found = {self._text(number): max(logprob, LEAST_LOGPROB) for number, logprob in reversed(score.top)}
        return {self._text(score.id): max(score.logprob, LEAST_LOGPROB), **found}

    def _text(self, number: int) -> str:
        return self._tokenizer.token_bytes(number).decode("utf-8", "replace")


def _is_id(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
