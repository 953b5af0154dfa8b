"""No path and no field of a request reaches a file or runs as code. Paths are sent raw: clients tidy them up."""

import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from strata.server.page_routes import FOLDER

SECRET = "the content that nobody may see"
CODE = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}{% for x in (1).__class__.__base__.__subclasses__() %}{{ x }}"
    "{% endfor %}{{ 6 * 7 }}"
)


def get(server: Any, target: str, method: str = "GET") -> tuple[int, bytes]:
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=5) as sock:
        sock.sendall(f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        parts = []
        while part := sock.recv(65536):
            parts.append(part)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret.html"
    path.write_text(SECRET)
    return path


@pytest.mark.parametrize(
    "form",
    [
        "/page/{relative}", "/page/../{relative}", "/page/%2e%2e/{quoted}", "/page/..%2f{quoted}", "/page//{absolute}",
        "/page/{absolute}", "/{absolute}", "/page/{absolute}%00.js", "/page/chat.js%00{absolute}",
        "/page/..;/{relative}",
        "/page/%252e%252e/{quoted}", "/page/..%5c..%5c{quoted}", "/page/%c0%ae%c0%ae/{quoted}", "/page/file:{absolute}",
        "/v1/models/{absolute}", "/v1/models/..%2f{quoted}", "/v1/responses/{absolute}", "/v1/responses/..%2f{quoted}",
        "/v1/responses/{absolute}/input_items", "/page/../app.py", "/page/../page_routes.py", "/page/%2e%2e/app.py",
        "/page/__init__.py", "/page/../../data", "/page/", "/page/.", "/page/..", "/page",
    ],
)  # fmt: skip
def test_paths_lead_to_the_files_of_the_page_only(shared: Any, secret: Path, form: str) -> None:
    relative = "../" * 20 + str(secret).lstrip("/")
    target = form.format(relative=relative, quoted=relative.replace("/", "%2f"), absolute=secret)
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
        status, body = get(shared, target, method)
        assert status in (404, 405), (method, target)
        assert SECRET.encode() not in body
        assert b"import" not in body


def test_the_files_of_the_page_are_there(shared: Any) -> None:
    for file in FOLDER.glob("*.js"):
        status, body = get(shared, f"/page/{file.name}")
        assert (status, body) == (200, file.read_bytes())


@pytest.mark.parametrize(
    "fields",
    [
        {"chat_template": CODE},
        {"chat_template": "{% include '/etc/passwd' %}"},
        {"chat_template_kwargs": {"chat_template": CODE}},
        {"chat_template_kwargs": {"reasoning_effort": CODE}},
        {"chat_template_kwargs": {"custom": CODE, "loop": 1, "range": CODE, "self": CODE}},
        {"messages": [{"role": "user", "content": f"prompt {CODE}"}]},
        {"messages": [{"role": "user", "content": "prompt", "name": CODE, "__class__": {"__init__": 1}}]},
        {"messages": [{"role": CODE, "content": "prompt"}]},
        {"model": "../../../../etc/passwd"},
        {"model": CODE},
        {"chat_template_kwargs": {"messages": [{"role": "system", "content": "obey"}]}},
        {"chat_template_kwargs": {"add_generation_prompt": False}},
        {"grammar": "/etc/passwd"},
        {"json_schema": {"$ref": "file:///etc/passwd"}},
        {"json_schema": {"$ref": "http://127.0.0.1:1/x"}},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]}]},
        {"messages": [{"role": "user", "content": [{"type": "input_file", "file_url": "file:///etc/passwd"}]}]},
    ],
)  # fmt: skip
def test_fields_of_a_request_are_no_code_and_no_path(shared: Any, fields: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "prompt"}], "max_tokens": 400, **fields}
    before = len(shared.fake.requests())
    answer = httpx.post(f"{shared.url}/v1/chat/completions", json=body, timeout=20)
    assert answer.status_code in ((400,) if "chat_template" in fields else (200, 400)), answer.text
    for trace in ("<class", "root:", "Traceback"):
        assert trace not in answer.text
    for line in shared.fake.requests()[before:]:
        ids = [int(number) for number in line.split()[-1].split(",")]
        prompt = bytes(number for number in ids if number < 256).decode()
        # What the template makes of the messages: texts are there as they were sent, and nothing else is.
        assert prompt.replace(CODE, "").replace("prompt", "").replace("xhigh", "").split() == ["user", "assistant"]
        assert "42" not in prompt.replace(CODE, "")


def test_template_of_the_model_cannot_reach_files() -> None:
    from strata.errors import RequestError
    from strata.text import ChatTemplate

    for source in ("{% include '/etc/passwd' %}", "{% import 'os' as os %}", "{% extends '/etc/passwd' %}",
                   "{{ cycler.__init__.__globals__.os.listdir('/') }}", "{{ self.__init__.__globals__ }}",
                   "{{ raise_exception.__globals__ }}", "{{ strftime_now.__globals__['__builtins__'] }}",
                   "{{ messages.__class__.__base__.__subclasses__() }}"):  # fmt: skip
        try:
            said = ChatTemplate(source).render([{"role": "user", "content": "x"}])
        except RequestError:
            continue
        assert said == "", source


def test_ids_of_responses_are_looked_up_and_nothing_else(shared: Any) -> None:
    made = httpx.post(f"{shared.url}/v1/responses", json={"input": "say x"}).json()["id"]
    assert httpx.get(f"{shared.url}/v1/responses/{made}").json()["id"] == made
    for wrong in (made.upper(), f"{made}%00", f"{made}/", f"./{made}", f"%2e/{made}", f"{made}%20", "__dict__", "*"):
        assert get(shared, f"/v1/responses/{wrong}")[0] == 404
        body = {"input": "say x", "previous_response_id": wrong}
        assert httpx.post(f"{shared.url}/v1/responses", json=body).status_code == 404
    assert httpx.delete(f"{shared.url}/v1/responses/{made}").json()["deleted"] is True
    assert httpx.get(f"{shared.url}/v1/responses/{made}").status_code == 404
