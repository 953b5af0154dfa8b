"""Bytes that are no proper request: each has an answer in the form of the API, and an end. Raw sockets, no client."""

import json
import logging
import random
import re
import select
import socket
import time
from typing import Any

import httpx
import pytest

from strata.server import connection

HOST = b"Host: localhost\r\n"
LAST = b"Connection: close\r\n" + HOST
POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
GOOD = json.dumps({"messages": [{"role": "user", "content": "say x"}]}).encode()


@pytest.fixture
def running(shared: Any) -> Any:
    return shared


def connect(server: Any, wait: float = 5) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=wait)


def everything(sock: socket.socket) -> bytes:
    """What comes until the server closes the connection; raises TimeoutError where it does not."""
    parts = []
    while part := sock.recv(65536):
        parts.append(part)
    return b"".join(parts)


def talk(server: Any, data: bytes, wait: float = 5) -> bytes:
    with connect(server, wait) as sock:
        sock.sendall(data)
        return everything(sock)


def parsed(answer: bytes) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON of one answer that is not chunked."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert int(headers["content-length"]) == len(body)
    return int(first.split()[1]), headers, json.loads(body)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01\x00\xf4\r\n\r\n", 400),
        (b"GET /\x00 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
        ("GET /ä HTTP/1.1\r\n".encode() + HOST + b"\r\n", 400),
        (b"GET /health HTTP/1.1\r\n" + HOST + b"X: a\x00b\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n" + HOST + HOST + b"\r\n", 400),
        (b"GET /health HTTP/1.1\r\n" + HOST + b"Bad Name: x\r\n\r\n", 400),
        (POST + HOST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}}", 400),
        (POST + HOST + b"Content-Length: -2\r\n\r\n{}", 400),
        (POST + HOST + b"Content-Length: +2\r\n\r\n{}", 400),
        (POST + HOST + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}", 400),
        (POST + HOST + b"Transfer-Encoding: gzip\r\n\r\n{}", 501),
        (POST + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 300_000, 431),
        (b"GET /health HTTP/1.1\r\n" + LAST + b"X: a\r\n" * 20_000 + b"\r\n", 431),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n" + LAST + b"\r\n", 431),
        (POST + LAST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400),
        (POST + LAST + b"Content-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 400),
        (POST + LAST + b"Content-Length: " + b"9" * 19 + b"\r\n\r\n{}", 413),
        (b"GET http://evil.example/health HTTP/1.1\r\n" + LAST + b"\r\n", 404),
        (b"CONNECT evil.example:443 HTTP/1.1\r\n" + LAST + b"\r\n", 404),
        (b"BREW /health HTTP/1.1\r\n" + LAST + b"\r\n", 405),
        (b"GET /%ff%zz%00 HTTP/1.1\r\n" + LAST + b"\r\n", 404),
        (b"GET /health HTTP/1.1\r\nConnection: close\r\nHost: [::1\r\n\r\n", 403),
        (POST + LAST + b"Origin: http://[::1\r\nContent-Length: 2\r\n\r\n{}", 403),
    ],
)
def test_what_is_no_request_has_an_answer(running: Any, data: bytes, status: int) -> None:
    found, headers, body = parsed(talk(running, data))
    assert found == status
    assert headers["content-type"] == "application/json"
    assert headers["connection"].lower() == "close"
    assert body["error"]["message"].endswith(".")
    assert "bytearray" not in body["error"]["message"]
    assert httpx.get(f"{running.url}/health").status_code in (200, 503)


def test_form_is_that_of_the_api_where_the_path_is_known(running: Any) -> None:
    head = b"POST /v1/messages HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    _, _, body = parsed(talk(running, head + b"zz\r\n"))
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")


def test_header_with_a_key_is_not_logged(running: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        talk(running, b"GET /health HTTP/1.1\r\n" + HOST + b"Authorization: Bearer sesame\x00\r\n\r\n")
    assert "400 before the request was whole" in caplog.text
    assert "sesame" not in caplog.text


def test_body_that_is_cut_off(running: Any) -> None:
    for framing in (b"Content-Length: 500\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"):
        with connect(running) as sock:
            sock.sendall(POST + HOST + framing + b"20\r\n{")
            sock.shutdown(socket.SHUT_WR)
            assert everything(sock)[9:12] in (b"", b"400")
        last = httpx.get(f"{running.url}/metrics").json()["requests"][0]
        assert (last["api"], last["status"], last["generations"]) == ("chat_completions", 400, 0)
    assert httpx.post(f"{running.url}/v1/chat/completions", content=GOOD).status_code == 200


def test_head_that_comes_too_slowly(
    running: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "HEAD_S", 0.3)
    begun = time.monotonic()
    with caplog.at_level(logging.INFO):
        status, _, body = parsed(talk(running, b"GET /health HTTP/1.1\r\nHost: lo"))
    assert (status, body["error"]["code"]) == (408, "timeout")
    assert "408 before the request was whole" in caplog.text
    assert talk(running, b"") == b""
    assert talk(running, b"GET /\r\n")[9:12] == b"408"
    # The same for the second request of a connection, also where it begins behind the first one.
    first = b"GET /health HTTP/1.1\r\n" + HOST + b"\r\n"
    for pieces in ([first, b"GET /hea"], [first + b"GET /hea"]):
        with connect(running) as sock:
            for piece in pieces:
                sock.sendall(piece)
                time.sleep(0.05)
            answers = everything(sock)
        assert answers.count(b"HTTP/1.1 ") == 2
        assert b"HTTP/1.1 408 " in answers
    # Byte after byte does not make it last longer.
    with connect(running) as sock:
        answer = b""
        sock.settimeout(0.02)
        for byte in b"GET /health HTTP/1.1\r\n" * 50:
            sock.sendall(bytes([byte]))
            try:
                answer = sock.recv(65536)
            except TimeoutError:
                continue
            break
        assert answer[9:12] == b"408"
    assert time.monotonic() - begun < 10
    # An answer may take longer than a head.
    slow = {"messages": [{"role": "user", "content": "slow 30"}]}
    answered = httpx.post(f"{running.url}/v1/chat/completions", json=slow, timeout=20)
    assert answered.json()["choices"][0]["message"]["content"] == "x" * 30


def test_connection_ends_when_the_rest_of_a_refused_body_does_not_come(
    running: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "LINGER_S", 0.3)
    status, _, _ = parsed(talk(running, POST + HOST + b"Content-Length: 100000\r\n\r\n{"))
    assert status == 413
    # A rest that comes in time is dropped, and the connection goes on.
    with connect(running) as sock:
        sock.sendall(POST + HOST + b"Content-Length: 6000\r\n\r\n")
        assert sock.recv(12) == b"HTTP/1.1 413"
        sock.sendall(b"x" * 6000 + b"GET /v1/models HTTP/1.1\r\n" + LAST + b"\r\n")
        assert b"HTTP/1.1 200 OK" in everything(sock)


def test_client_that_does_not_read_is_left(one_at_a_time: Any, helpers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STUCK_S", 0.3)
    body = json.dumps({"content": "x " * 150_000, "with_pieces": True}).encode()
    with helpers["serving"](one_at_a_time) as server, connect(server, 20) as sock:
        size = str(len(body)).encode()
        sock.sendall(b"POST /tokenize HTTP/1.1\r\n" + HOST + b"Content-Length: " + size + b"\r\n\r\n" + body)
        assert sock.recv(12) == b"HTTP/1.1 200"
        time.sleep(1)
        head, _, body = everything(sock).partition(b"\r\n\r\n")
        whole = re.search(rb"content-length: (\d+)", head)
        assert whole is not None
        assert 0 < len(body) < int(whole[1])


def test_random_damage_is_never_a_fault_of_the_server(running: Any) -> None:
    draw = random.Random(6)
    whole = POST + LAST + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(GOOD) + GOOD
    seen = set()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(data))
            match draw.randrange(4):
                case 0:
                    data[at] = draw.randrange(256)
                case 1:
                    del data[at : at + draw.randint(1, 20)]
                case 2:
                    data[at:at] = draw.choice([b"\r\n", b"\x00", b"%00", b": ", b"\xff", b"9" * 20, b"{"])
                case 3:
                    data[at:at] = data[: draw.randrange(60)]
        with connect(running) as sock:
            sock.sendall(data)
            select.select([sock], [], [], 0.1)  # without an answer it waits for more
            sock.shutdown(socket.SHUT_WR)
            answer = everything(sock)
        for status in re.findall(rb"HTTP/1.1 (\d+) ", answer):
            seen.add(status)
            assert status[:1] in b"24", (bytes(data), answer)
    assert {b"200", b"400"} <= seen
    assert httpx.post(f"{running.url}/v1/chat/completions", content=GOOD).status_code == 200
