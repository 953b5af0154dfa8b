"""Pages of other origins: the questions that browsers ask, as https://fetch.spec.whatwg.org has them."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from strata.errors import UsageError
from strata.server.cors import origin_of
from strata.server.guard import Access

APP = "https://app.example"
CHAT = {"messages": [{"role": "user", "content": "say x"}]}
# What the JavaScript clients of both APIs send from a browser.
SENT = "authorization,content-type,x-api-key,anthropic-version,anthropic-dangerous-direct-browser-access,x-stainless-os"


def ask(server: Any, origin: str = APP, method: str = "POST", path: str = "/v1/chat/completions", **more: str) -> Any:
    headers = {"origin": origin, "access-control-request-method": method, "access-control-request-headers": SENT}
    return httpx.options(server.url + path, headers={**headers, **more})


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory, helpers: Any) -> Iterator[Any]:
    access = Access(cors_origins=(APP, "http://localhost:5173"))
    fake = helpers["Fake"](tmp_path_factory.mktemp("open") / "record", lanes=True)
    with helpers["serving"](fake, access=access) as server:
        yield server


@pytest.fixture(scope="module")
def locked_server(tmp_path_factory: pytest.TempPathFactory, helpers: Any) -> Iterator[Any]:
    fake = helpers["Fake"](tmp_path_factory.mktemp("locked") / "record", lanes=True)
    with helpers["serving"](fake, access=Access(keys=("k",), cors_origins=("*",))) as server:
        yield server


def test_off_by_default(shared: Any) -> None:
    answer = ask(shared)
    assert answer.status_code == 403
    answer = ask(shared, origin="http://localhost:5173")
    assert answer.status_code == 405
    for other in (answer, httpx.get(f"{shared.url}/v1/models", headers={"origin": APP})):
        assert not [name for name in other.headers if name.startswith("access-control-")]


def test_page_of_a_named_origin(open_server: Any) -> None:
    answer = ask(open_server)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["access-control-allow-origin"] == APP
    assert answer.headers["access-control-allow-headers"] == SENT
    assert "POST" in answer.headers["access-control-allow-methods"]
    assert "Origin" in answer.headers["vary"]
    said = httpx.post(f"{open_server.url}/v1/chat/completions", json=CHAT, headers={"origin": APP})
    assert said.json()["choices"][0]["message"]["content"] == "x"
    assert said.headers["access-control-allow-origin"] == APP
    assert "retry-after" in said.headers["access-control-expose-headers"]
    wrong = httpx.post(f"{open_server.url}/v1/chat/completions", json={}, headers={"origin": APP})
    assert (wrong.status_code, wrong.headers["access-control-allow-origin"]) == (400, APP)
    with httpx.stream(
        "POST", f"{open_server.url}/v1/chat/completions", json={**CHAT, "stream": True}, headers={"origin": APP}
    ) as stream:
        assert stream.headers["access-control-allow-origin"] == APP


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://app.example", f"{APP}.evil.example", "*"])
def test_page_of_any_other_origin(open_server: Any, origin: str) -> None:
    asked = ask(open_server, origin)
    said = httpx.post(f"{open_server.url}/v1/chat/completions", json=CHAT, headers={"origin": origin})
    read = httpx.get(f"{open_server.url}/v1/models", headers={"origin": origin})
    assert (asked.status_code, said.status_code, read.status_code) == (403, 403, 200)
    assert asked.json()["error"]["code"] == "origin_not_allowed"
    for answer in (asked, said, read):
        assert "access-control-allow-origin" not in answer.headers
        assert "Origin" in answer.headers["vary"]


def test_host_and_type_are_looked_at_as_before(open_server: Any) -> None:
    assert ask(open_server, host="evil.example").status_code == 403
    for change, status in (({"host": "evil.example"}, 403), ({"content-type": "text/plain"}, 415)):
        headers = {"origin": APP, **change}
        assert httpx.post(f"{open_server.url}/v1/messages", json=CHAT, headers=headers).status_code == status


def test_question_bears_no_key_but_the_request_must(locked_server: Any) -> None:
    headers = {"origin": "https://anyone.example"}
    assert ask(locked_server, headers["origin"]).headers["access-control-allow-origin"] == headers["origin"]
    refused = httpx.post(f"{locked_server.url}/v1/chat/completions", json=CHAT, headers=headers)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, "https://anyone.example")
    headers["authorization"] = "Bearer k"
    assert httpx.post(f"{locked_server.url}/v1/chat/completions", json=CHAT, headers=headers).status_code == 200
    assert httpx.options(f"{locked_server.url}/v1/models", headers={"origin": APP}).status_code == 401


def test_odd_questions(locked_server: Any) -> None:
    odd = ask(locked_server, **{"access-control-request-headers": "a b; c"})
    assert (odd.status_code, "access-control-allow-headers" in odd.headers) == (204, False)
    assert ask(locked_server, path="/nowhere").status_code == 204
    private = ask(locked_server, **{"access-control-request-private-network": "true"})
    assert private.headers["access-control-allow-private-network"] == "true"


def test_origins_are_written_as_browsers_do() -> None:
    assert origin_of(" HTTPS://App.Example:443/ ") == APP
    assert origin_of("http://app.example:8080") == "http://app.example:8080"
    assert origin_of("tauri://localhost") == "tauri://localhost"
    for wrong in ("app.example", "https://", "https://app.example/path", "", "https://a b", "https://u@app.example"):
        with pytest.raises(UsageError, match="is no origin"):
            origin_of(wrong)


def test_everybody_needs_a_key() -> None:
    for origin in ("*", "null"):
        with pytest.raises(UsageError, match=r"every web page .*--api-key-file"):
            Access(cors_origins=(APP, origin)).check()
        Access(keys=("k",), cors_origins=(origin,)).check()
    with pytest.raises(UsageError, match="is no origin"):
        Access(cors_origins=("example.org",)).check()
