"""A reply is the same however its text is cut into tokens, and each character that is shown has its own score."""

import random
from typing import Any

import pytest

from strata.server.reply import Reply
from strata.server.scores import ScoredPiece, TokenScore
from strata.text import Part, Piece
from strata.text.calls import CallArguments, CallClosed, CallOpened, Tool

CALL = "<tool_call>\n<function=look>\n<parameter=n>\n{}\n</parameter>\n</function>\n</tool_call>"
PARTS = ["Hello", " ", "\n\n", "stop", "st", "o", CALL.format(1), CALL.format("two"), CALL.format(3)[:40], "é😀", "<",
         "</", "<tool_call>", "<think>", "</think>", "<function=look>\n</function>", '{"name"', "ends"]  # fmt: skip
TOOLS = [Tool("look", "", {"properties": {"n": {"type": "integer"}}})]


class Cuts:
    """Stands for a tokenizer: each cut of a text is a token, and no mark is one."""

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens

    def id_of(self, text: str) -> None:
        return None

    def is_silent(self, number: int) -> bool:
        return False

    def token_bytes(self, number: int) -> bytes:
        return self.tokens[number]


def told(tokens: list[bytes], natural: bool, **options: Any) -> tuple[list[Any], list[int], Reply]:
    """What a reply says, neighbouring pieces of a kind as one, and the tokens of which scores were told."""
    reply = Reply(Cuts(tokens), **options)  # type: ignore[arg-type]
    events: list[Any] = []
    for number in range(len(tokens)):
        events += reply.push(number, TokenScore(number, -1.0))
        if reply.ended:
            break
    events += reply.finish(natural=natural)
    merged: list[Any] = []
    for event in events:
        match event:
            case Piece(part, text) | CallArguments(part, text):
                if merged and merged[-1][0] == part:
                    merged[-1][1] += text
                else:
                    merged.append([part, text])
            case CallOpened(index, _, name):
                merged.append(["open", index, name])
            case CallClosed(index):
                merged.append(["close", index])
    scores = [score.id for event in events if isinstance(event, ScoredPiece) for score in event.scores]
    return merged, scores, reply


@pytest.mark.parametrize("seed", range(300))
def test_cuts_change_nothing(seed: int) -> None:
    draw = random.Random(seed)
    text = "".join(draw.choice(PARTS) for _ in range(draw.randrange(1, 9)))
    options: dict[str, Any] = {
        "stop": draw.choice([(), ("stop",), ("o", "ends")]), "split": draw.random() < 0.7, "thinking": False,
        "tools": draw.choice([(), TOOLS]), "one_call": draw.random() < 0.3,
    }  # fmt: skip
    options["thinking"] = options["split"] and draw.random() < 0.5
    natural, data = draw.random() < 0.7, text.encode()
    single, scores, reply = told([data[at : at + 1] for at in range(len(data))], natural, **options)
    places = sorted(draw.sample(range(1, len(data)), min(len(data) - 1, draw.randrange(6)))) if len(data) > 1 else []
    pieces = [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    cut, _, other = told(pieces, natural, **options)
    assert cut == single
    assert (other.called, other.stop_string) == (reply.called, reply.stop_string)
    shown = "".join(words for part, *rest in single if part is Part.ANSWER for words in rest)
    assert b"".join(data[at : at + 1] for at in scores).decode() == shown
