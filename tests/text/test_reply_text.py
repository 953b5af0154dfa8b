"""Streaming text: complete characters, stop strings and thinking, against the whole text taken at once."""

import re
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.errors import RequestError
from strata.text import Detokenizer, Part, ReasoningSplitter, StopStrings, Tokenizer, starts_inside
from strata.text.bytelevel import ALPHABET

BYTES = Tokenizer.from_metadata({
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen35",
    "tokenizer.ggml.tokens": [*ALPHABET, "<|im_end|>", "<think>"], "tokenizer.ggml.merges": [],
    "tokenizer.ggml.token_type": [1] * 256 + [3, 3],
})  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=40))
def test_detokenizer_gives_what_decoding_the_whole_gives(data: bytes) -> None:
    detokenizer = Detokenizer(BYTES)
    shown = "".join(detokenizer.push(byte) for byte in data)
    whole = data.decode("utf-8", "replace")
    # A character that the end cuts off is not shown; everything before it is.
    assert whole.startswith(shown)
    assert set(whole[len(shown) :]) <= {"\ufffd"}


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=20))
def test_every_piece_is_whole_characters(text: str) -> None:
    detokenizer = Detokenizer(BYTES)
    pieces = [detokenizer.push(byte) for byte in text.encode()]
    assert "".join(pieces) == text
    assert [piece for piece in pieces if piece] == list(text)


def test_control_tokens_are_silent_but_marks_of_structure_are_not() -> None:
    detokenizer = Detokenizer(BYTES)
    assert detokenizer.push(256) == ""
    assert detokenizer.push(257) == "<think>"


def _reference(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The shortest beginning of the text that ends with a stop string, found by trying every one."""
    for end in range(len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            longest = max(found, key=len)
            return text[: end - len(longest)], longest
    return text, None


@settings(max_examples=1000, deadline=None)
@given(
    text=st.text("ab", max_size=30),
    stops=st.lists(st.text("ab", min_size=1, max_size=6), max_size=6),
    cuts=st.lists(st.integers(0, 30), max_size=8),
)
def test_stop_strings_wherever_the_text_is_cut(text: str, stops: list[str], cuts: list[int]) -> None:
    borders = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[a:b] for a, b in zip(borders, borders[1:], strict=False)]
    filter_ = StopStrings(stops)
    shown = ""
    for piece in pieces:
        shown += filter_.push(piece)
        assert _reference(text, stops)[0].startswith(shown)
    if filter_.matched is None:
        shown += filter_.finish()
    assert (shown, filter_.matched) == _reference(text, stops)


def test_text_is_held_back_only_while_it_may_become_a_stop() -> None:
    filter_ = StopStrings(["END"])
    assert [filter_.push(piece) for piece in ("a E", "N", "X EN", "D!")] == ["a ", "", "ENX ", ""]
    assert filter_.matched == "END"
    with pytest.raises(RequestError, match="empty"):
        StopStrings(["x", ""])


def test_ten_thousand_stop_strings_cost_no_time() -> None:
    filter_ = StopStrings([f"stop{number:05d}!" for number in range(10_000)])
    assert filter_.push("stop" * 50_000 + "stop09999!") == "stop" * 50_000
    assert filter_.matched == "stop09999!"


def test_megabytes_of_stop_strings_cost_no_memory() -> None:
    stops = [f"{number:03d}{'yz' * 5000}" for number in range(1000)]
    tracemalloc.start()
    filter_ = StopStrings(stops)
    text = stops[3][:5000] + stops[7]
    shown = filter_.push(text[:-1])
    held = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert shown == text[: -len(stops[7])]
    assert filter_.push(text[-1]) == ""
    assert filter_.matched == stops[7]
    assert held < 32 * 2**20


def _split_whole(text: str, inside: bool) -> tuple[str, str]:
    """Thinking and answer of a whole reply, by one regular expression."""
    form = r"(?s)\s*(.*?)(?:\s*</think>\s*(.*))?" if inside else r"(?s)\s*<think>\s*(.*?)(?:\s*</think>\s*(.*))?"
    match = re.fullmatch(form, text)
    if match is None:
        return "", text
    if match.group(2) is None:
        return match.group(1).rstrip(), ""
    return match.group(1), match.group(2)


@settings(max_examples=1000, deadline=None)
@given(
    parts=st.lists(st.sampled_from(["<think>", "</think>", "<", "</", "think>", " ", "\n\n", "word"]), max_size=9),
    inside=st.booleans(),
    size=st.integers(1, 9),
)
def test_thinking_wherever_the_text_is_cut(parts: list[str], inside: bool, size: int) -> None:
    text = "".join(parts)
    splitter = ReasoningSplitter(inside)
    pieces = []
    for start in range(0, len(text), size):
        pieces += splitter.push(text[start : start + size])
    pieces += splitter.finish()
    got = tuple("".join(piece.text for piece in pieces if piece.part is part) for part in (Part.REASONING, Part.ANSWER))
    assert got == _split_whole(text, inside)
    assert all(piece.text for piece in pieces)


def test_prompt_says_where_the_reply_starts() -> None:
    assert starts_inside("<|im_start|>assistant\n<think>\n")
    assert not starts_inside("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert not starts_inside("<|im_start|>assistant\n")
