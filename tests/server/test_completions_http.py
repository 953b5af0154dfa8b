"""/v1/completions through the real `openai` client: prompts that are continued as they are."""

from typing import Any

import httpx
import openai
import pytest


@pytest.fixture
def client(shared: Any) -> Any:
    with openai.OpenAI(base_url=f"{shared.url}/v1", api_key="any", max_retries=0, timeout=20) as made:
        yield made


def prompt(text: str) -> str:
    """A prompt after which the scripted engine does what `text` says."""
    return f"user\n{text}\n"


def test_a_prompt_is_continued_as_it_is(client: Any, shared: Any) -> None:
    answer = client.completions.create(model="m", prompt=prompt("say <think>x"), max_tokens=50)
    assert answer.id.startswith("cmpl-")
    assert (answer.object, answer.choices[0].text, answer.choices[0].finish_reason) == (
        "text_completion", "x", "stop",
    )  # fmt: skip
    ids = [int(number) for number in shared.fake.requests()[-1].split()[-1].split(",")]
    assert ids == [*b"user\nsay ", 259, *b"x\n"]
    assert answer.usage.prompt_tokens == len(ids)
    thought = client.completions.create(model="m", prompt=prompt("think Well."), max_tokens=50)
    assert thought.choices[0].text == "\n<think>\nhm\n</think>\n\nWell."
    short = client.completions.create(model="m", prompt=prompt("say " + "x" * 30))
    assert (len(short.choices[0].text), short.choices[0].finish_reason) == (16, "length")


def test_prompts_and_choices_are_numbered(client: Any) -> None:
    options: dict[str, Any] = {"model": "m", "prompt": [prompt("say one"), list(prompt("say two").encode())], "n": 2}
    whole = client.completions.create(**options)
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in whole.choices] == ["one", "one", "two", "two"]
    assert whole.usage.prompt_tokens == 2 * len(prompt("say one"))
    assert whole.usage.completion_tokens == 4 * 4
    chunks = list(client.completions.create(**options, stream=True, echo=True, stream_options={"include_usage": True}))
    for index, said in enumerate(("one", "one", "two", "two")):
        mine = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert "".join(choice.text for choice in mine) == prompt(f"say {said}") + said
        assert [choice.finish_reason for choice in mine if choice.finish_reason] == ["stop"]
    assert chunks[-1].usage == whole.usage


def test_logprobs_and_echo(client: Any) -> None:
    answer = client.completions.create(model="m", prompt=prompt("say AB"), logprobs=2).choices[0]
    scores = answer.logprobs
    assert (scores.tokens, scores.token_logprobs, scores.text_offset) == (["A", "B"], [-1.5, -2.5], [0, 1])
    assert scores.top_logprobs == [{"A": -0.25, "B": -1.25}, {"B": -0.25, "C": -1.25}]
    chunks = list(client.completions.create(model="m", prompt=prompt("say AB"), logprobs=0, stream=True))
    told = [choice.logprobs for chunk in chunks for choice in chunk.choices if choice.logprobs]
    assert [offset for part in told for offset in part.text_offset] == [0, 1]
    echoed = client.completions.create(model="m", prompt=prompt("say A"), echo=True)
    assert echoed.choices[0].text == prompt("say A") + "A"
    assert client.completions.create(model="m", prompt=prompt("say one two"), stop=" t").choices[0].text == "one"


@pytest.mark.parametrize(
    ("change", "param", "said"),
    [
        ({"prompt": []}, "prompt", "1 to 128"), ({"prompt": None}, "prompt", "1 to 128"),
        ({"prompt": ["a", 3]}, "prompt", "prompt[1] must be"), ({"prompt": [[True]]}, "prompt", "prompt[0] must be"),
        ({"prompt": [999]}, None, "999 is no token of this model"), ({"prompt": ["x"] * 129}, "prompt", "128"),
        ({"logprobs": 6}, "logprobs", "from 0 to 5, not 6"), ({"best_of": 3}, "best_of", "best_of"),
        ({"echo": True, "logprobs": 1}, "echo", "echo with logprobs"), ({"suffix": "x"}, "suffix", "suffix"),
        ({"tools": [{"type": "function"}]}, "tools", "tools is not implemented"),
        ({"n": 200}, "n", "from 1 to 128, not 200"), ({"max_tokens": -7}, "max_tokens", "at least 1"),
    ],
)  # fmt: skip
def test_wrong_values_are_sentences(shared: Any, change: dict[str, Any], param: str | None, said: str) -> None:
    answer = httpx.post(f"{shared.url}/v1/completions", json={"prompt": "x", **change})
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert (error["param"], error["type"]) == (param, "invalid_request_error")
    assert said in error["message"]


def test_too_many_replies_are_refused_before_any_is_begun(client: Any, shared: Any) -> None:
    before = len(shared.fake.requests())
    with pytest.raises(openai.BadRequestError, match="128 prompts with n 9 are 1152 replies"):
        client.completions.create(model="m", prompt=["x"] * 128, n=9)
    assert len(shared.fake.requests()) == before


def test_seeds_of_several_replies_go_around_behind_the_last(client: Any, shared: Any) -> None:
    client.completions.create(model="m", prompt=prompt("say x"), n=3, seed=2**64 - 1, temperature=1)
    seeds = sorted(line.split("seed=")[1].split()[0] for line in shared.fake.requests()[-3:])
    assert seeds == sorted([str(2**64 - 1), str(0x9E3779B97F4A7C15), "1"])
