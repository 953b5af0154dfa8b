"""The real `anthropic` client against the real server."""

from typing import Any

import anthropic
import httpx
import pytest


@pytest.fixture
def client(shared: Any) -> Any:
    with anthropic.Anthropic(base_url=shared.url, api_key="any", max_retries=0, timeout=20) as made:
        yield made


def asked(text: str, **options: Any) -> dict[str, Any]:
    return {"model": "any", "max_tokens": 200, "messages": [{"role": "user", "content": text}], **options}


def test_whole_and_streamed_answers_agree(client: Any) -> None:
    whole = client.messages.create(**asked("think Well."))
    assert [block.type for block in whole.content] == ["thinking", "text"]
    assert (whole.content[0].thinking, whole.content[1].text, whole.stop_reason) == ("hm", "Well.", "end_turn")
    with client.messages.stream(**asked("think Well.")) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert [block.to_dict() for block in final.content] == [block.to_dict() for block in whole.content]
    assert final.usage == whole.usage
    count = client.messages.count_tokens(model="any", messages=asked("think Well.")["messages"]).input_tokens
    usage = whole.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == count
    assert usage.cache_read_input_tokens == 4


def test_limits_and_stop_sequences_have_their_reason(client: Any) -> None:
    short = client.messages.create(**asked("say abcdef", max_tokens=2))
    assert (short.content[0].text, short.stop_reason) == ("ab", "max_tokens")
    stopped = client.messages.create(**asked("say one two", stop_sequences=[" t"]))
    assert (stopped.content[0].text, stopped.stop_reason, stopped.stop_sequence) == ("one", "stop_sequence", " t")


def test_a_prompt_that_is_too_long_says_so_in_words_that_agents_know(client: Any) -> None:
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > 503 maximum") as caught:
        client.messages.create(**asked("x" * 600))
    assert caught.value.request_id.startswith("req_")
    assert client.messages.count_tokens(model="any", messages=asked("x" * 600)["messages"]).input_tokens > 600


@pytest.mark.parametrize(
    "change",
    [
        {"max_tokens": None}, {"max_tokens": 0}, {"messages": []}, {"messages": [{"role": "robot", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, {"messages": [5]},
        {"messages": [{"role": "assistant", "content": "x"}]}, {"temperature": "hot"}, {"temperature": -1},
        {"thinking": {"type": "maybe"}}, {"thinking": {"type": "enabled"}}, {"stop_sequences": [""]},
        {"thinking": {"type": "enabled", "budget_tokens": 500}}, {"output_config": {"effort": "huge"}},
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {"tools": [{"name": "f"}]},
        {"tool_choice": {"type": "any"}}, {"tool_choice": {"type": "tool", "name": "f"}}, {"system": [{"type": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}]},
        {"output_config": {"format": {"type": "xml"}}}, {"mcp_servers": [{}]},
    ],
)  # fmt: skip
def test_wrong_fields_are_refused_in_this_api_s_form(shared: Any, change: dict[str, Any]) -> None:
    answer = httpx.post(f"{shared.url}/v1/messages?beta=true", json={**asked("say x"), **change})
    body = answer.json()
    assert (answer.status_code, body["type"], body["error"]["type"]) == (400, "error", "invalid_request_error"), body
    assert body["error"]["message"]
    assert body["request_id"] == answer.headers["request-id"]
