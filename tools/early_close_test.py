"""A client that stops reading a streamed answer early does not leave its tokens to the next request.

`early_close_test.py [URL]`: a running server (key in STRATA_KEY), or by itself one of the demo model. A question is
asked first; then again right after a stream was left, alone and with a second stream beside it: the answers must be the
same. Exit code 0: they are; 2: they differ, or lack `--expect`; 1: the server failed.
"""

import argparse
import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

from engine_config import BrokenProtocol, run_script
from script_prompts import Checks

QUESTION = "What colour is the sky on a clear day?"
LEFT = "Name all months and describe each."
BESIDE = "Describe the four seasons in detail."
LINES_READ = 5
STREAMED, ANSWERED = 300, 60


class Server:
    """A server's address, and chat requests to it."""

    def __init__(self, url: str, key: str, timeout: float) -> None:
        parts = urllib.parse.urlsplit(url if "//" in url else f"//{url}")
        if not parts.hostname:
            raise BrokenProtocol(f"{url!r} is no address: it should look like http://127.0.0.1:8080")
        self._parts, self._key, self._timeout = parts, key, timeout

    def _post(self, text: str, max_tokens: int, stream: bool) -> tuple[http.client.HTTPConnection, Any]:
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout)
        body = {
            "model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": max_tokens,
            "stream": stream, "chat_template_kwargs": {"enable_thinking": False},
        }  # fmt: skip
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        try:
            connection.request("POST", self._parts.path.rstrip("/") + "/v1/chat/completions", json.dumps(body), headers)
            answer = connection.getresponse()
            if answer.status != 200:
                said = answer.read(2000).decode(errors="replace")
                raise BrokenProtocol(f"the server answered {answer.status}: {said}")
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise BrokenProtocol(f"{self._parts.netloc} does not answer: {error}") from None
        except BrokenProtocol:
            connection.close()
            raise
        return connection, answer

    def ask(self, text: str) -> str:
        """A whole answer, its thinking included."""
        connection, answer = self._post(text, ANSWERED, stream=False)
        with contextlib.closing(connection):
            try:
                message = json.loads(answer.read())["choices"][0]["message"]
            except (OSError, ValueError, LookupError, http.client.HTTPException) as error:
                raise BrokenProtocol(f"the answer is not a chat completion: {error!r}") from None
        parts = (message.get(name) for name in ("reasoning_content", "reasoning", "content"))
        return "".join(part for part in parts if part)

    def leave(self, text: str) -> None:
        """Begin a stream, read a few lines of it, and go."""
        connection, answer = self._post(text, STREAMED, stream=True)
        with contextlib.closing(connection):
            lines = [answer.readline() for _ in range(LINES_READ)]
        if not any(line.startswith(b"data:") for line in lines) or b"[DONE]" in b"".join(lines):
            raise BrokenProtocol(f"the stream cannot be left early, it began with {b''.join(lines)!r}")

    def stream(self, text: str) -> str:
        """A streamed answer, read to its [DONE]."""
        connection, answer = self._post(text, STREAMED, stream=True)
        pieces: list[str] = []
        with contextlib.closing(connection):
            for line in answer:
                if line.strip() == b"data: [DONE]":
                    return "".join(pieces)
                if line.startswith(b"data: "):
                    event = json.loads(line[6:])
                    if "error" in event:
                        raise BrokenProtocol(f"an error within a stream: {event['error']}")
                    delta = event["choices"][0]["delta"] if event.get("choices") else {}
                    pieces += [delta[name] for name in ("reasoning_content", "content") if delta.get(name)]
        raise BrokenProtocol("a stream ended without [DONE]")


@contextlib.contextmanager
def own_server() -> Iterator[str]:
    """The address of a `strata serve` of the demo model on a free port; it must end well."""
    command = [sys.executable, "-m", "strata.cli", "serve", "--port", "0"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        line = child.stdout.readline()
        match = re.search(r"http://\S+", line)
        if match is None:
            raise BrokenProtocol(f"`strata serve` did not start (exit code {child.wait()})")
        yield match.group()
        child.terminate()
        code = child.wait(60)
        if code:
            raise BrokenProtocol(f"the server ended with exit code {code}")
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


class Beside:
    """A stream that is read to its end in a thread of its own."""

    def __init__(self, server: Server, text: str) -> None:
        self._text: str | None = None
        self._error: Exception | None = None

        def work() -> None:
            try:
                self._text = server.stream(text)
            except Exception as error:
                self._error = error

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()

    def result(self) -> str:
        """The streamed answer."""
        self._thread.join()
        if self._text is None:
            raise BrokenProtocol(f"the second request failed: {self._error}")
        return self._text


def test(server: Server, options: argparse.Namespace) -> int:
    """Ask, leave, ask again; the exit code."""
    checks = Checks()

    def compare(name: str, expected: str, got: str) -> None:
        found = f"the same {len(got)} characters" if expected == got else f"{got!r} instead of {expected!r}"
        checks.true(expected == got, f"{name}: {found}")
        if options.expect and "second" not in name:
            checks.true(options.expect.lower() in got.lower(), f"{name}: the word {options.expect!r}")

    reference, beside = server.ask(QUESTION), server.stream(BESIDE)
    print(f"the answer: {reference!r}")
    compare("before", reference, server.ask(QUESTION))
    for number in range(options.rounds):
        server.leave(LEFT)
        compare(f"after a stream that was left ({number + 1})", reference, server.ask(QUESTION))
        running = Beside(server, BESIDE)
        server.leave(LEFT)
        compare(f"with another request beside it ({number + 1})", reference, server.ask(QUESTION))
        compare(f"the second request itself ({number + 1})", beside, running.result())
    return checks.code


def main() -> int:
    """Run the test; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", help="http://HOST:PORT of a server (default: one is started)")
    parser.add_argument("--expect", help="word that the answer must have (`blue`, of a model that knows)")
    parser.add_argument("--rounds", type=int, default=1, help="how often (default: 1)")
    parser.add_argument("--timeout", type=float, default=600.0, help="longest silence in seconds (default: 600)")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        url = options.url or stack.enter_context(own_server())
        return test(Server(url, os.environ.get("STRATA_KEY", ""), options.timeout), options)


if __name__ == "__main__":
    run_script(main)
