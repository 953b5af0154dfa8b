"""The parts of `strata chat` by themselves: what a server may answer, what a user may type, what a model may write."""

import io
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strata import settings
from strata.cli.main import main
from strata.cli.remote import Remote, ServerError
from strata.cli.talk import HELP, Conversation, Turn
from strata.cli.terminal import Input, Printer
from strata.errors import UsageError
from strata.text import Part, Piece

MODELS = json.dumps({"data": [{"id": "tiny", "meta": {"n_ctx": 77}}]})
ASKED = Turn([{"role": "user", "content": "x"}], None)


def http(status: str, body: str, kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n{body}".encode()


def events(*values: Any, end: str = "data: [DONE]\n\n") -> bytes:
    return http("200 OK", "".join(f"data: {json.dumps(value)}\n\n" for value in values) + end, "text/event-stream")


def delta(finish: str | None = None, **fields: str) -> dict[str, Any]:
    return {"choices": [{"delta": fields, "finish_reason": finish}]}


@pytest.fixture
def answers() -> Iterator[Callable[..., str]]:
    """A server that sends these bytes, one a connection, and keeps what it was asked."""
    listener = socket.create_server(("127.0.0.1", 0))
    asked: list[bytes] = []

    def serve(*replies: bytes) -> str:
        def work() -> None:
            for reply in replies:
                connection, _ = listener.accept()
                with connection, connection.makefile("rb") as source:
                    head = b""
                    while not head.endswith(b"\r\n\r\n"):
                        head += source.readline()
                    length = [int(line[15:]) for line in head.lower().split(b"\r\n") if line[:15] == b"content-length:"]
                    asked.append(head + source.read(length[0] if length else 0))
                    connection.sendall(reply)

        threading.Thread(target=work, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    serve.asked = asked  # type: ignore[attr-defined]
    yield serve
    listener.close()


def test_a_reply_in_parts(answers: Any) -> None:
    url = answers(
        http("200 OK", MODELS),
        events({"choices": []}, delta(role="assistant", content=""), delta(reasoning_content="hm"), delta(content="a"),
               delta(content="b"), delta("length")),
    )  # fmt: skip
    remote = Remote(f"{url}/v1/", "secret", {"temperature": 0.5, "max_tokens": 7})
    assert remote.about == f"tiny at {url}, context 77 tokens"
    shown: list[Piece] = []
    assert remote.reply(Turn(ASKED.messages, False), shown.append) == "length"
    assert shown == [Piece(Part.REASONING, "hm"), Piece(Part.ANSWER, "a"), Piece(Part.ANSWER, "b")]
    head, _, body = answers.asked[1].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert b"Authorization: Bearer secret" in head
    assert json.loads(body) == {
        "model": "tiny", "messages": ASKED.messages, "stream": True, "temperature": 0.5, "max_tokens": 7,
        "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (http("200 OK", "<html>", "text/html"), "is no server with the OpenAI API"),
        (http("200 OK", "[1]"), "is no server with the OpenAI API"),
        (http("200 OK", '{"data": []}'), "is no server with the OpenAI API"),
        (http("404 Not Found", "nothing", "text/plain"), "There is no OpenAI API at"),
        (http("401 Unauthorized", "{}"), "refuses the key that it was given; set STRATA_API_KEY"),
        (http("403 Forbidden", '{"error": {"message": "The host name is not mine."}}'), "The host name is not mine."),
        (http("502 Bad Gateway", "oops"), "answered with status 502 Bad Gateway"),
        (http("503 Busy", '{"error": {"message": "The engine is not running."}}'), "The engine is not running."),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "ended the connection before its answer was whole"),
        (b"", "ended the connection before its answer was whole"),
    ],
)
def test_what_is_no_answer_is_one_sentence(answers: Any, reply: bytes, said: str) -> None:
    with pytest.raises(ServerError) as caught:
        Remote(answers(reply), "key", {})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (events(delta(content="a"), {"error": {"message": "The engine died."}}), "The engine died."),
        (events(delta(content="a"), {"error": "Broken."}), "Broken."),
        (events(delta(content="a"), {"error": {}, "choices": []}, end=""), "in the middle of the reply"),
        (events(delta(content="a"), end=""), "in the middle of the reply"),
        (events(delta(content="a"), end="data: {pears\n\n"), "an event that is not JSON"),
        (http("400 Bad Request", '{"error": {"message": "The prompt is too long."}}'), "The prompt is too long."),
    ],
)
def test_replies_that_fail(answers: Any, reply: bytes, said: str) -> None:
    remote = Remote(answers(http("200 OK", MODELS), reply), "", {})
    with pytest.raises(ServerError, match=said):
        remote.reply(ASKED, lambda piece: None)


def test_nobody_there(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert main(["chat", "--url", f"127.0.0.1:{port}"]) == 1
    there = f"There is no server at http://127.0.0.1:{port} (Connection refused)"
    assert capfd.readouterr().err == f"strata: {there}; `strata serve` starts one.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "ftp://x"], "--url 'ftp://x' is not the address of a server"),
        (["--url", "http://"], "is not the address of a server"),
        (["--url", "http://x:99999"], "is not the address of a server"),
        (["--url", "http://me:secret@x"], "is not the address of a server"),
        (["--url", "http://x", "--model", "m.gguf"], "--model is for an engine of one's own"),
        (["--url", "http://x", "--threads", "3"], "--threads is for an engine of one's own"),
        (["--url", "http://x", "--api-key-file", "/nowhere"], "--api-key-file /nowhere cannot be read: No such file"),
        (["--api-key-file", "/nowhere"], "--api-key-file is for a running server; name it with --url."),
    ],
)
def test_wrong_options(words: list[str], said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", *words]) == 2
    assert said in capfd.readouterr().err


@pytest.mark.parametrize("content", ["", " \n"])
def test_an_empty_key_file(content: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    assert main(["chat", "--url", "http://x", "--api-key-file", str(file)]) == 2
    assert f"--api-key-file {file} is empty." in capfd.readouterr().err
    with pytest.raises(UsageError, match="no HTTP header"):
        Remote("http://x", "a\r\nb", {})


@pytest.mark.parametrize(
    ("typed", "messages"),
    [
        ("a\nb\n", ["a", "b"]),
        ("a\\\nb\\\n\nc", ["a\nb\n", "c"]),
        ("a\\", ["a"]),
        ('"""\na\n\n  b"""\nc', ["a\n\n  b", "c"]),
        ('"""a"""\nc', ["a", "c"]),
        ('"""a\nb\n"""\n', ["a\nb"]),
        ('"""a\nb', ["a\nb"]),
    ],
)
def test_messages_of_several_lines(typed: str, messages: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    source = Input()
    found = []
    while (message := source.message()) is not None:
        found.append(message)
    assert found == messages


def test_commands() -> None:
    talk = Conversation("Be brief.", None)
    talk.add("a", "b")
    system = {"role": "system", "content": "Be brief."}
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert talk.turn("c").messages == [system, *turns, {"role": "user", "content": "c"}]
    assert talk.command("/system") == "The system message: Be brief."
    talk.command("/system Speak  Latin.")
    assert talk.messages[0] == {"role": "system", "content": "Speak  Latin."}
    assert talk.command("/reset") == "The conversation starts anew."
    assert talk.messages == [{"role": "system", "content": "Speak  Latin."}]
    talk.command("/system off")
    assert talk.messages == []
    for value, thinking in (("on", True), ("off", False), ("auto", None)):
        talk.command(f"/think {value}")
        assert talk.turn("x").thinking is thinking
    assert talk.command("/fold on") == "Thinking is shown as one line."
    assert talk.fold
    assert talk.command("/help") == HELP
    assert talk.command("/fold") == "/fold takes on or off, not ''."
    assert str(talk.command("/etc/passwd is a file")).startswith("There is no such command")
    assert talk.command("/quit") is None


def test_a_model_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    printer = Printer(fold=False)
    text = "a\x1b]0;title\x07b\x1b[2Jc\rd\x9b1m\te\n"
    printer(Piece(Part.ANSWER, text))
    shown = capsys.readouterr().out
    assert "a\u241b]0;title\u2407b\u241b[2Jc\u240dd\ufffd1m" in shown
    assert not {"\x1b", "\x07", "\r", "\x9b"} & set(shown)
    assert printer.answer == text


def test_state_directory() -> None:
    assert settings.state_directory({"XDG_STATE_HOME": "/a/b"}) == Path("/a/b/strata")
    for other in ({}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}):
        assert settings.state_directory(other) == Path.home() / ".local" / "state" / "strata"
