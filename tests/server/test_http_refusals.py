"""Requests that are wrong, not implemented or not allowed: a clear status and sentence, and a server that goes on."""

import socket
from typing import Any

import httpx
import pytest

from strata.errors import RequestError, UsageError
from strata.server.guard import Access
from strata.server.keys import split_keys
from strata.server.listen import bind

GOOD: dict[str, Any] = {"messages": [{"role": "user", "content": "say x"}]}


def post(running: Any, body: Any, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else None
    send = {"content": content} if content is not None else {"json": body}
    headers = {"content-type": "application/json", **headers}
    return httpx.post(f"{running.url}/v1/chat/completions", headers=headers, timeout=10, **send)


@pytest.fixture
def running(shared: Any) -> Any:
    return shared


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("best_of", 2), ("functions", [{"name": "f"}]), ("modalities", ["text", "audio"]), ("ignore_eos", True),
        ("bad_words", ["a"]), ("allowed_token_ids", [5]), ("truncate_prompt_tokens", 5), ("dynatemp_range", 1),
        ("include_stop_str_in_output", True), ("top_n_sigma", 1), ("prompt_logprobs", 1),
        ("continue_final_message", True), ("add_generation_prompt", False),
    ],
)  # fmt: skip
def test_option_that_is_not_implemented_is_refused_by_name(running: Any, option: str, value: Any) -> None:
    answer = post(running, {**GOOD, option: value})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", option, "unsupported_parameter")
    assert error["message"].startswith(f"{option} is not implemented")


def test_neutral_and_unknown_options_are_accepted(running: Any) -> None:
    neutral = {
        "n": 1, "tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "logprobs": False,
        "presence_penalty": 0, "frequency_penalty": 0.0, "repetition_penalty": 1.0, "logit_bias": None, "user": "me",
        "store": False, "metadata": {"a": 1}, "something_new": [1], "parallel_tool_calls": True, "top_k": -1,
        "bad_words": [], "truncate_prompt_tokens": -1, "dynatemp_range": 0, "top_n_sigma": -1,
        "add_generation_prompt": True,
    }  # fmt: skip
    answer = post(running, {**GOOD, **neutral})
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "x"


@pytest.mark.parametrize(
    ("change", "param", "said"),
    [
        ({"messages": []}, "messages", "at least one"),
        ({"messages": "hello"}, "messages", "Expected `array`"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "'robot'"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "messages[0].content must be a text"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "must be a text"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type", "'image_url'",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "must be a text"),
        (
            {"messages": [{"role": "tool", "tool_call_id": "c", "content": "x"}]},
            "messages[0].tool_call_id", "no tool call",
        ),
        ({"n": 0}, "n", "from 1 to 128, not 0"),
        ({"tools": [{"type": "custom"}]}, "tools[0].type", "'custom'"),
        ({"tools": [{"function": {"name": "a b"}}]}, "tools[0].name", "none of them blank"),
        ({"tool_choice": "required"}, "tool_choice", "there are no tools"),
        ({"tool_choice": "always"}, "tool_choice", "auto, none, required"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice", "'g'"),
        ({"thinking_budget": -2}, "thinking_budget", "at least 0"),
        ({"tools": [{"function": {"name": "f", "strict": True}}]}, None, "with no single tokens"),
        ({"guided_choice": ["a"]}, None, "enforces no grammar"),
        ({"temperature": "hot"}, "temperature", "Expected `float"),
        ({"temperature": -1}, "temperature", "temperature must be from 0 to 100, not -1"),
        ({"top_p": 1.5}, "top_p", "top_p must be"),
        ({"max_tokens": 1.5}, "max_tokens", "Expected `int"),
        ({"max_tokens": -5}, "max_tokens", "max_tokens must be at least 1"),
        ({"seed": 2**70}, "seed", "seed must fit in 64 bits"),
        ({"presence_penalty": 2.5}, "presence_penalty", "presence_penalty must be from -2 to 2, not 2.5"),
        ({"frequency_penalty": -3}, "frequency_penalty", "frequency_penalty must be"),
        ({"repetition_penalty": 0}, "repetition_penalty", "repetition_penalty must be"),
        ({"penalty_last_n": -2}, "penalty_last_n", "penalty_last_n must be"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "'x' is not a token id"),
        ({"logit_bias": {"5": 101}}, "logit_bias", "logit_bias of token 5 must be from -100 to 100, not 101"),
        ({"logit_bias": {"261": 1}}, "logit_bias", "261 is no token of this model (0 to 260)"),
        ({"logit_bias": {"5": "much"}}, "logit_bias", "Expected `float`"),
        ({"logprobs": 3}, "logprobs", "Expected `bool"),
        ({"top_logprobs": 3}, "top_logprobs", "top_logprobs needs logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "from 0 to 20, not 21"),
        ({"stop": ["a", ""]}, "stop", "empty"),
        ({"reasoning_effort": "huge"}, None, "'huge' is unknown"),
        ({"chat_template_kwargs": {"messages": []}}, None, "may not set 'messages'"),
        ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs", "true or false"),
        ({"stream": "yes"}, "stream", "Expected `bool"),
    ],
)  # fmt: skip
def test_wrong_value_is_a_sentence(running: Any, change: dict[str, Any], param: str | None, said: str) -> None:
    answer = post(running, {**GOOD, **change})
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert error["param"] == param
    assert said in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[" * 4000, b'{"a":' * 900, b'{"messages": [{"role": "user", "content": NaN}]}', b'"text"', b"{}",
    ],
)  # fmt: skip
def test_malformed_bodies_are_refused(running: Any, body: bytes) -> None:
    answer = post(running, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]
    assert post(running, GOOD).status_code == 200


def test_sizes_and_times_of_bodies_are_limited(running: Any) -> None:
    assert post(running, b"x" * 5001).status_code == 413
    host, port = running.url.removeprefix("http://").split(":")

    def raw(head: bytes) -> bytes:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n" + head)
            return connection.recv(65536)

    chunk = b"1000\r\n" + b"x" * 4096 + b"\r\n"
    assert b" 413 " in raw(b"Transfer-Encoding: chunked\r\n\r\n" + chunk + chunk)
    assert b" 408 " in raw(b"Content-Length: 100\r\n\r\n{")
    assert b" 400 " in raw(b"Content-Length: many\r\n\r\n{}")


def test_chunked_body_is_read(running: Any) -> None:
    answer = httpx.post(
        f"{running.url}/v1/chat/completions", headers={"content-type": "application/json"},
        content=iter([b'{"messages": [{"role": "us', b'er", "content": "say chunks"}]}']),
    )
    assert answer.json()["choices"][0]["message"]["content"] == "chunks"


def test_unknown_paths_and_methods(running: Any) -> None:
    assert httpx.get(f"{running.url}/v2/../../etc/passwd").status_code == 404
    assert httpx.get(f"{running.url}/nowhere").json()["error"]["code"] == "not_found"
    answer = httpx.get(f"{running.url}/v1/chat/completions")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")


def test_foreign_pages_may_not_use_a_server_without_a_key(running: Any) -> None:
    assert post(running, GOOD, host="evil.example").status_code == 403
    assert post(running, GOOD, host="localhost:1234").status_code == 200
    assert post(running, GOOD, origin="https://evil.example").status_code == 403
    assert post(running, GOOD, origin="null").status_code == 403
    assert post(running, GOOD, origin="http://127.0.0.1:3000").status_code == 200
    assert post(running, GOOD, **{"content-type": "text/plain"}).status_code == 415
    foreign = httpx.get(f"{running.url}/v1/models", headers={"host": "evil.example"})
    assert foreign.status_code == 403
    assert "--allowed-host" in foreign.json()["error"]["message"]
    assert "/openapi.json lists" in httpx.get(f"{running.url}/nowhere").json()["error"]["message"]


def test_keys(fake: Any, helpers: Any) -> None:
    with helpers["serving"](fake, access=Access(keys=split_keys("first, second"))) as server:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"x-api-key": "firs"}, {"authorization": "Basic first"},
                        {"authorization": "Bearer \xe9"}):
            answer = httpx.get(f"{server.url}/v1/models", headers={k: v.encode("latin-1") for k, v in headers.items()})
            assert answer.status_code == 401
            assert answer.json()["error"]["type"] == "authentication_error"
        for headers in ({"authorization": "Bearer first"}, {"x-api-key": "second"}, {"authorization": "bearer second"}):
            assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200
        assert httpx.get(f"{server.url}/health").status_code in (200, 503)
        assert httpx.get(server.url).status_code == 200
        assert post(server, GOOD, authorization="Bearer first", host="any.example").status_code == 200


def test_open_to_others_without_a_key_is_refused() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(UsageError, match="--api-key"):
            Access(host).check()
        Access(host, keys=("k",)).check()
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        Access(host).check()
    with pytest.raises(UsageError, match="printable"):
        Access(keys=("a b",)).check()


def test_busy_port_is_a_sentence() -> None:
    with bind("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(UsageError, match=rf"Port {port} at 127.0.0.1 is in use.*--port"):
            bind("127.0.0.1", port)
    with pytest.raises(UsageError, match="not an address"):
        bind("no such host", 1)


def test_model_without_a_template_says_so(helpers: Any) -> None:
    from strata.server.generation import Ask, Generator

    generator = Generator(None, helpers["make_tokenizer"](None), name="bare")  # type: ignore[arg-type]
    assert generator.template is not None, "ChatML tokens are there, so the plain ChatML format is used"
    generator.template = None
    with pytest.raises(RequestError, match="bare has no chat template"):
        generator._prepare(Ask(messages=[{"role": "user", "content": "x"}]), 100)


def test_a_bug_is_told_and_its_connection_closed_in_the_open(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that keeps its connection would else send its next request into one that is being closed."""
    with httpx.Client(timeout=10) as client, monkeypatch.context() as broken:
        broken.setattr("strata.server.openai.choices", lambda *_: 1 / 0)
        answer = client.post(f"{running.url}/v1/chat/completions", json=GOOD)
        assert (answer.status_code, answer.json()["error"]["code"]) == (500, "bug")
        assert answer.headers["connection"] == "close"
        broken.undo()
        assert client.post(f"{running.url}/v1/chat/completions", json=GOOD).status_code == 200
