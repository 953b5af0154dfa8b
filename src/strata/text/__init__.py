"""Text to tokens and back: tokenizer, chat template, streaming, stop strings, thinking. Free of torch and numpy."""

from strata.text.reasoning import Part, Piece, ReasoningSplitter, starts_inside
from strata.text.stream import Detokenizer, StopStrings
from strata.text.template import ChatTemplate
from strata.text.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "Detokenizer",
    "Part",
    "Piece",
    "ReasoningSplitter",
    "StopStrings",
    "Tokenizer",
    "starts_inside",
]
