"""The real `openai` client at /v1/responses."""

from typing import Any

import httpx
import openai
import pytest

from strata.engine.protocol import CONTEXT_RESERVE


@pytest.fixture
def client(shared: Any) -> Any:
    with openai.OpenAI(base_url=f"{shared.url}/v1", api_key="any", max_retries=0, timeout=20) as made:
        yield made


def test_whole_and_streamed_answers_agree(client: Any) -> None:
    whole = client.responses.create(model="m", input="think Well.")
    assert [item.type for item in whole.output] == ["reasoning", "message"]
    assert (whole.output_text, whole.status, whole.output[0].content[0].text) == ("Well.", "completed", "hm")
    with client.responses.stream(model="m", input="think Well.") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == "Well."
    assert final.usage == whole.usage
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events if event.type != "response.in_progress"]
    assert list(dict.fromkeys(kinds)) == [
        "created", "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
        "content_part.done", "output_item.done", "output_text.delta", "output_text.done", "completed",
    ]  # fmt: skip


def test_a_conversation_goes_on_from_a_stored_response(client: Any) -> None:
    first = client.responses.create(model="m", input="say one", instructions="Be brief.")
    second = client.responses.create(model="m", input="prompt", previous_response_id=first.id)
    assert second.output_text == "user\nsay one\nassistant\none\nuser\nprompt\nassistant\n"
    assert client.responses.retrieve(first.id).output_text == "one"
    assert client.responses.input_items.list(first.id).data[0].content[0].text == "say one"
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError, match="There is no response"):
        client.responses.retrieve(first.id)
    unstored = client.responses.create(model="m", input="say x", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="m", input="say y", previous_response_id=unstored.id)


def test_limits_and_too_long_prompts(client: Any) -> None:
    short = client.responses.create(model="m", input="say abcdef", max_output_tokens=2)
    assert (short.output_text, short.status) == ("ab", "incomplete")
    assert short.incomplete_details.reason == "max_output_tokens"
    with pytest.raises(openai.BadRequestError, match="has 6"):
        client.responses.create(model="m", input="x" * 600)
    *_, last = client.responses.create(model="m", input="x" * 600, stream=True)
    assert (last.type, last.response.error.code) == ("response.failed", "context_length_exceeded")
    turns: Any = [{"role": "user", "content": "x" * 600}, {"role": "user", "content": "say short"}]
    assert client.responses.create(model="m", input=turns, truncation="auto").output_text == "short"


@pytest.mark.parametrize(
    "change",
    [
        {"input": None}, {"input": []}, {"input": [5]}, {"input": [{"type": "robot"}]}, {"temperature": "hot"},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, {"max_output_tokens": 0},
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, {"tools": [{"type": "web_search"}]},
        {"tools": [{"type": "function"}]}, {"tool_choice": "any"}, {"tool_choice": "required"}, {"include": ["x"]},
        {"text": {"format": {"type": "xml"}}}, {"reasoning": {"effort": "huge"}}, {"truncation": "yes"},
        {"background": True}, {"top_logprobs": 50}, {"tools": [{"type": "shell", "name": "shell"}]},
    ],
)  # fmt: skip
def test_wrong_fields_are_refused(shared: Any, change: dict[str, Any]) -> None:
    answer = httpx.post(f"{shared.url}/v1/responses", json={"input": "say x", **change})
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert answer.json()["error"]["message"]


def test_truncation_leaves_out_no_more_than_it_has_to(client: Any, shared: Any) -> None:
    begins: Any = [{"role": "assistant", "content": "Hi."}, {"role": "user", "content": "prompt"}]
    fits = client.responses.create(model="m", input=begins, truncation="auto")
    assert fits.output_text == "assistant\nHi.\nuser\nprompt\nassistant\n"
    turns: Any = [{"role": "user", "content": f"turn {number:02d}"} for number in range(80)]
    turns += [{"role": "user", "content": "prompt"}]
    said = client.responses.create(model="m", input=turns, truncation="auto", max_output_tokens=1)
    count = said.usage.input_tokens
    left = next(n for n in range(81) if _tokens(shared, turns[n:]) == count)
    assert _tokens(shared, turns[left:]) <= 512 - CONTEXT_RESERVE - 1 < _tokens(shared, turns[left - 1 :])


def _tokens(shared: Any, turns: Any) -> int:
    """The prompt's tokens, by the fake model's template and its vocabulary of bytes."""
    return sum(len(f"{turn['role']}\n{turn['content']}") + 3 for turn in turns) + len("assistant\n") + 1


@pytest.mark.parametrize("kind", ["shell", "local_shell", "apply_patch", "computer_use_preview"])
def test_tools_that_have_no_name_are_refused_by_their_type(shared: Any, kind: str) -> None:
    answer = httpx.post(f"{shared.url}/v1/responses", json={"input": "say x", "tools": [{"type": kind}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tools[0].type")
    assert f"({kind!r}) is not implemented" in answer.json()["error"]["message"]
