"""Grammars enforced: which tokens may come next so that a reply stays one that its grammar accepts.

The work is done by llguidance (https://github.com/guidance-ai/llguidance): an Earley parser over a lexer of regex
derivatives, walked along a prefix tree of the vocabulary. A constraint follows the drawn tokens of one lane and of no
other, so it depends neither on the lane's neighbours nor on drafts.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from strata import logs
from strata.errors import RequestError, StrataError
from strata.text.grammar import LONGEST, Grammar
from strata.text.tokenizer import Tokenizer
from strata.text.vocabulary import TokenType

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

Mask = npt.NDArray[np.bool_]
log = logs.get("engine")
KEPT = 32
"""Compiled grammars, and reasons of refusals, that are kept for the next request with the same."""
BLANKS = r"(?: |\r?\n[\x20\x09]{0,40})"
"""Between the parts of a JSON text: a blank, or a line break and an indentation. Whatever is bounded here ends: with
all that JSON allows, a model that has lost its thread writes blanks for ever."""
LONGEST_FORCED = 2048
"""Tokens of a text that has to come; a longer one is not proposed: each step would find all of it anew."""
STEP_FUEL = 50_000
"""What the lexer may build in one step, in its own units: 0.1 to 0.2 s, in which all conversations wait."""
_LEADING = (b"\n\n", b"\n")
_SHOWN = re.compile(r"\n *\d+ \||<backtrace>")


class _Words:
    """A tokenizer in the form that llguidance reads: bytes by id, which ids are special, and an encoder."""

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        vocab = tokenizer.vocabulary
        self.eos_token_id = end
        self.bos_token_id = None
        self.special_token_ids = [n for n in range(tokenizer.size) if _special(vocab.tokens[n], vocab.types[n])]
        unused = {n for n, kind in enumerate(vocab.types) if kind == TokenType.UNUSED}
        self.tokens = [b"" if n in unused else tokenizer.token_bytes(n) for n in range(tokenizer.size)]
        self._tokenizer = tokenizer

    def __call__(self, text: str | bytes) -> list[int]:
        if isinstance(text, bytes):  # llguidance asks so whether bytes are understood
            raise TypeError("text, not bytes")
        try:
            return self._tokenizer.encode(text)
        except RequestError:
            return []  # only proposals come from here, and there are none for bytes without a token


def _special(text: str, kind: int) -> bool:
    """Whether a token is no text: a control token, or one that a file calls user-defined and writes as a mark."""
    marked = text.startswith("<") and text.endswith(">")
    return kind in (TokenType.CONTROL, TokenType.UNKNOWN) or (kind == TokenType.USER_DEFINED and marked)


class Grammars:
    """Compiles grammars for one vocabulary. `size`: width of the logits; `ends`: tokens that end every reply.

    The vocabulary is read (`tokenizer`) and arranged at the first grammar: a second for 250,000 tokens, once.
    """

    def __init__(self, tokenizer: Callable[[], Tokenizer], size: int, ends: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._size = size
        self._ends = tuple(sorted(ends))
        self._words: LLTokenizer | None = None
        self._leading: dict[int, int] = {}
        self._kept: OrderedDict[Grammar, LLMatcher | RequestError] = OrderedDict()

    def constraint(self, grammar: Grammar, after: int | None = None, *, optional: bool = False) -> "Constraint":
        """A constraint at its beginning, or one that begins behind the token `after`.

        `optional`: the reply may end without that token, and the grammar begins right behind it; else line breaks may
        stand between.

        Raises RequestError with the reason for a grammar that is none, too large, or not enforced in full.
        """
        if not self._ends:
            raise _refused("this engine was started without end tokens (--eos-ids), so that no reply could end")
        words = self._ready()
        if after is not None and after >= self._size:
            raise _refused(f"grammar_after names token {after}, outside the vocabulary of {self._size}")
        matcher = self._compiled(words, grammar)
        return Constraint(matcher.deep_copy(), self._size, self._ends, after, self._leading, optional=optional)

    def _compiled(self, words: "LLTokenizer", grammar: Grammar) -> "LLMatcher":
        """The matcher of a grammar; one that is refused is remembered too, for its client may well try again."""
        found = self._kept.get(grammar)
        if found is None:
            try:
                found = _compiled(words, grammar)
            except RequestError as error:
                found = error.with_traceback(None)
            self._kept[grammar] = found
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(grammar)
        if isinstance(found, RequestError):
            raise RequestError(str(found))
        return found

    def _ready(self) -> "LLTokenizer":
        if self._words is None:
            from llguidance import LLTokenizer, TokenizerWrapper  # 8 MB that requests without a grammar do without

            tokenizer = self._tokenizer()
            words = _Words(tokenizer, self._ends[0])
            ends = [n for n in self._ends if n < tokenizer.size]
            self._words = LLTokenizer(TokenizerWrapper(words), eos_token=ends)
            self._leading = {words.tokens.index(text): len(text) for text in _LEADING if text in words.tokens}
        return self._words


class Constraint:
    """What one lane may draw next. `allowed` and `advance` follow each other, a token at a time."""

    def __init__(
        self, matcher: "LLMatcher", size: int, ends: Sequence[int], after: int | None, leading: dict[int, int], *,
        optional: bool = False,
    ) -> None:  # fmt: skip
        self._matcher = matcher
        self._size = size
        self._ends = list(ends)
        self._after = after
        self._optional = optional
        self._leading = leading
        self._proposes = True
        self._breaks = 0  # line breaks that may still stand between the token `after` and the reply

    @property
    def begun(self) -> bool:
        """Whether the grammar holds already (else its first token is awaited)."""
        return self._after is None

    def allowed(self) -> Mask:
        """Which tokens (V,) may come next; an end token exactly if the grammar accepts what is there.

        Raises RequestError if the grammar has become too much to follow.
        """
        if not self.begun:
            mask = np.ones(self._size, np.bool_)
            mask[self._ends] = self._optional
            return mask
        bits = _bits(self._matcher)
        known = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")[: self._size].view(np.bool_)
        mask = np.zeros(self._size, np.bool_)
        mask[: len(known)] = known
        for token, breaks in self._leading.items():
            if breaks <= self._breaks:
                mask[token] = True
        return mask

    def advance(self, token: int) -> None:
        """A token was drawn, one of those that were allowed."""
        if not self.begun:
            if token == self._after:
                self._after = None
                self._breaks = 0 if self._optional else max(self._leading.values(), default=0)
            return
        if self._leading.get(token, self._breaks + 1) <= self._breaks:
            self._breaks -= self._leading[token]
            return
        self._breaks = 0
        if not self._matcher.consume_token(token):
            raise _lost(self._matcher.get_error())

    def forced(self, most: int) -> tuple[int, ...]:
        """Up to `most` tokens that most likely come next: the usual ones of a text that has to come next."""
        if not self.begun or self._breaks or not self._proposes:
            return ()
        found = self._matcher.compute_ff_tokens()
        self._proposes = len(found) <= LONGEST_FORCED
        return tuple(found[:most])

    def fitting(self, tokens: Sequence[int]) -> Sequence[int]:
        """The tokens up to the first that the grammar forbids."""
        if not self.begun or self._breaks:
            return tokens
        return tokens[: self._matcher.validate_tokens(list(tokens))]


def _bits(matcher: "LLMatcher") -> bytes:
    """Which tokens may come next, a bit each. Raises RequestError if there is none, or too much to find them."""
    try:
        bits = matcher.compute_bitmask()
    except Exception as error:  # the library raises bare exceptions
        raise _lost(matcher.get_error() or error) from None
    if matcher.is_error():
        raise _lost(matcher.get_error())
    return bits


def _lost(reason: object) -> RequestError:
    if "NoExtension" in str(reason):
        return _refused("no text fits it")
    return _refused(f"it cannot be followed any further: {_cut(reason)}")


def _compiled(words: "LLTokenizer", grammar: Grammar) -> "LLMatcher":
    from llguidance import LLMatcher, LLParserLimits

    if len(grammar.text.encode("utf-8", "surrogatepass")) > LONGEST:
        raise _refused(f"its text may have {LONGEST} bytes, not {len(grammar.text)}")
    try:
        source = _source(grammar)
    except StrataError:
        raise
    except Exception as error:
        raise _refused(_cut(error)) from None
    limits = LLParserLimits(verbose_errors=False, step_lexer_fuel=STEP_FUEL)
    matcher = LLMatcher(words, source, log_level=0, limits=limits)
    if matcher.is_error():
        raise _refused(_cut(matcher.get_error()))
    if warnings := matcher.get_grammar_warnings():
        raise _refused(_cut("; ".join(warnings)))
    _bits(matcher)
    return matcher


def _source(grammar: Grammar) -> str:
    """The grammar in the form that llguidance takes."""
    from llguidance import LLMatcher

    match grammar.kind:
        case "json_object" | "json_schema":
            schema: Any = json.loads(grammar.text) if grammar.kind == "json_schema" else {"type": "object"}
            if isinstance(schema, bool):
                schema = {} if schema else {"not": {}}
            if not isinstance(schema, dict):
                raise _refused("a JSON schema is an object, true or false")
            return LLMatcher.grammar_from_json_schema(schema, defaults={"whitespace_pattern": BLANKS})
        case "regex":
            return LLMatcher.grammar_from_regex(grammar.text)
        case "choice":
            choices = json.loads(grammar.text)
            if not (isinstance(choices, list) and choices and all(isinstance(one, str) for one in choices)):
                raise _refused("choices are a list of one text or more")
            return LLMatcher.grammar_from_lark("start: CHOICE\nCHOICE: " + " | ".join(map(json.dumps, choices)))
        case "gbnf":
            from llguidance.gbnf_to_lark import gbnf_to_lark

            return LLMatcher.grammar_from_lark(gbnf_to_lark(grammar.text))
        case _:
            return LLMatcher.grammar_from_lark(grammar.text)


def _refused(reason: str) -> RequestError:
    return RequestError(f"bad request: grammar: {reason}")


def _cut(reason: object) -> str:
    """One line of it, without the lines of the grammar that llguidance shows below."""
    text = " ".join(_SHOWN.split(str(reason))[0].replace("<non-verbose/>", "").split())
    return text if len(text) <= 400 else text[:400] + "..."
