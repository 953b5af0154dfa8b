"""What a request says about drawing and about log-probabilities: it reaches the engine, and returns with the text."""

import json
import math
from typing import Any

import openai
import pytest
from test_http import ask, client_for


def keys_of(client: openai.OpenAI, **options: Any) -> dict[str, str]:
    said = ask(client, "keys", **options).choices[0].message.content
    return dict(word.split("=", 1) for word in said.split())


def test_penalties_and_bias_reach_the_engine(running: Any) -> None:
    with client_for(running) as client:
        assert keys_of(client, presence_penalty=0.5, frequency_penalty=-1, extra_body={"repetition_penalty": 1.1}) == {
            "penalty_last_n": "64", "penalty_repeat": "1.1", "penalty_freq": "-1.0", "penalty_present": "0.5",
        }  # fmt: skip
        assert keys_of(client, presence_penalty=1, extra_body={"penalty_last_n": 5})["penalty_last_n"] == "5"
        whole = keys_of(client, presence_penalty=1, extra_body={"penalty_last_n": -1})
        assert int(whole["penalty_last_n"]) >= 512
        assert keys_of(client, presence_penalty=1, extra_body={"penalty_last_n": 0}) == {}
        assert keys_of(client, extra_body={"repeat_penalty": 1.25})["penalty_repeat"] == "1.25"
        # A greedy request keeps its penalties and its bias, and nothing of what only matters for drawing.
        assert keys_of(client, logit_bias={"65": 5, "3": -100}, temperature=0, seed=5) == {
            "logit_bias": "3:-100.0,65:5.0"
        }
        both = keys_of(client, logit_bias={"65": 0.5}, temperature=0.5, seed=5)
        assert (both["logit_bias"], both["temperature"], both["seed"]) == ("65:0.5", "0.5", "5")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "content"), [("say Grüße 😀!", "Grüße 😀!"), ("think Well, ö.", "Well, ö."), ("say ", "")]
)
def test_logprobs_are_those_of_the_answers_tokens(running: Any, stream: bool, text: str, content: str) -> None:
    """As the scripted engine makes them: -(id % 8).5 of a token, and 0.25, -1.25, ... of those that follow it."""
    options = {"logprobs": True, "top_logprobs": 2}
    with client_for(running) as client:
        if stream:
            chunks = [chunk.choices[0] for chunk in ask(client, text, stream=True, **options)]
            scores = [score for chunk in chunks if chunk.logprobs for score in chunk.logprobs.content]
            assert "".join(chunk.delta.content or "" for chunk in chunks) == content
            assert all(chunk.logprobs is None or chunk.delta.content for chunk in chunks)
        else:
            choice = ask(client, text, **options).choices[0]
            assert choice.message.content == content
            scores = choice.logprobs.content
    assert bytes(byte for score in scores for byte in score.bytes).decode() == content
    for score, byte in zip(scores, content.encode(), strict=True):
        assert score.bytes == [byte]
        assert score.token == bytes([byte]).decode("utf-8", "replace")
        assert score.logprob == -(byte % 8) - 0.5
        tops = [(top.bytes, top.logprob) for top in score.top_logprobs]
        assert tops == [([byte], -0.25), ([(byte + 1) % 256], -1.25)]


def test_logprobs_end_before_a_stop_string(running: Any) -> None:
    with client_for(running) as client:
        choice = ask(client, "say one two three", stop=["o t"], logprobs=True).choices[0]
        assert choice.message.content == "one tw"
        assert [score.token for score in choice.logprobs.content] == list("one tw")
        assert [score.top_logprobs for score in choice.logprobs.content] == [[]] * 6


def test_no_logprobs_unless_asked(running: Any) -> None:
    with client_for(running) as client:
        assert ask(client, "say x", logprobs=False).choices[0].logprobs is None
        assert ask(client, "say x", logprobs=True).choices[0].logprobs is not None


def test_engine_that_knows_no_logprobs(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from strata.engine.protocol import Gen

    original = Gen.format
    monkeypatch.setattr(Gen, "format", lambda self: original(self).replace("logprobs=", "unknown="))
    with client_for(running) as client, pytest.raises(openai.BadRequestError, match="does not tell log-prob"):
        ask(client, "say x", logprobs=True)


def test_full_pool_cuts_the_reply(running: Any) -> None:
    with client_for(running) as client:
        answer = ask(client, "pool abc")
        assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("abc", "length")
        assert answer.model_extra["truncated"] is True
        last = list(ask(client, "pool abc", stream=True))[-1]
        assert (last.choices[0].finish_reason, last.model_extra["truncated"]) == ("length", True)
        assert "truncated" not in ask(client, "say abc").model_extra


def test_minus_infinity_is_a_number(helpers: Any) -> None:
    from strata.server.openai_answer import ChatAnswer
    from strata.server.scores import ScoredPiece, TokenScore
    from strata.text import Part

    answer = ChatAnswer("m", helpers["make_tokenizer"](), scored=True)
    piece = ScoredPiece(Part.ANSWER, "A", (TokenScore(65, -math.inf, ((66, -math.inf),)),))
    score = json.loads(answer.frames((0, piece)).removeprefix(b"data: "))["choices"][0]["logprobs"]["content"][0]
    assert (score["logprob"], score["top_logprobs"][0]["logprob"]) == (-9999.0, -9999.0)
