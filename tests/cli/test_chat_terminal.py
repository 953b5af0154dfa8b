"""`strata chat` as a user has it: a terminal on one side, `strata serve` with the demo model on the other."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from server.demo_server import demo_server

STORY = "Write a long story about the sea, with many words."
ENDLESS = "Count from one to one thousand. Write every number."
CTRL_C, CTRL_D, UP = "\x03", "\x04", "\x1b[A"


class Terminal:
    """A program on a pseudo-terminal: `expect` waits for a text to appear after what was found before."""

    def __init__(self, fd: int, child: "subprocess.Popen[bytes]") -> None:
        self._fd, self._child = fd, child
        self._seen = 0
        self.text = ""

    def send(self, text: str) -> None:
        os.write(self._fd, text.encode())

    def line(self, text: str) -> None:
        self.send(text + "\r")

    def expect(self, pattern: str, limit_s: float = 20) -> "re.Match[str]":
        deadline = time.monotonic() + limit_s
        while (found := re.compile(pattern, re.DOTALL).search(self.text, self._seen)) is None:
            assert self._read(deadline), f"no {pattern!r} in {self.text[self._seen:]!r}"
        self._seen = found.end()
        return found

    def ended(self, limit_s: float = 20) -> int:
        deadline = time.monotonic() + limit_s
        while self._read(deadline):
            pass
        return self._child.wait(max(0.1, deadline - time.monotonic()))

    def _read(self, deadline: float) -> bool:
        if not select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._fd, 4096)
        except OSError:  # the other side of a pseudo-terminal that is closed
            return False
        self.text += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def chat(state: Path, *words: str, key: str = "") -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    environment = os.environ | {
        "XDG_STATE_HOME": str(state), "TERM": "xterm", "STRATA_API_KEY": key, "COLUMNS": "200", "INPUTRC": "/dev/null",
    }  # fmt: skip
    with subprocess.Popen(
        [sys.executable, "-m", "strata.cli", "chat", *words], stdin=theirs, stdout=theirs, stderr=theirs,
        env=environment, start_new_session=True, preexec_fn=_own_terminal,
    ) as child:  # fmt: skip
        os.close(theirs)
        try:
            yield Terminal(ours, child)
        finally:
            child.kill()
            os.close(ours)


def _own_terminal() -> None:
    """The new session gets stdin as its terminal: Ctrl-C is a signal only there."""
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with demo_server() as (url, _):
        yield url


def greedy(url: str, *messages: str, **fields: Any) -> str:
    """What the server answers to a conversation."""
    roles = ("user", "assistant")
    told = [{"role": roles[number % 2], "content": text} for number, text in enumerate(messages)]
    fields = {"messages": told, "temperature": 0, **fields}
    return str(httpx.post(f"{url}/v1/chat/completions", json=fields).json()["choices"][0]["message"]["content"])


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "")


def test_a_conversation_over_several_turns(url: str, tmp_path: Path) -> None:
    first = greedy(url, "Hello!")
    second = greedy(url, "Hello!", first, "Name two\ncolours.\n")
    with chat(tmp_path, "--url", url, "--temperature", "0") as terminal:
        terminal.expect(re.escape(f"strata-demo at {url}, context 2048 tokens"))
        terminal.expect("> ")
        terminal.line("Hello!")
        terminal.expect(re.escape(first))
        terminal.expect("> ")
        terminal.line("Name two\\")
        terminal.expect(r"\.\.\. ")
        terminal.line("colours.\\")
        terminal.expect(r"\.\.\. ")
        terminal.line("")
        terminal.expect(re.escape(second))
        terminal.expect("> ")
        terminal.line("/reset")
        terminal.expect("starts anew")
        terminal.line('"""Hello!')
        terminal.expect(r"\.\.\. ")
        terminal.line('"""')
        terminal.expect(re.escape(first))
        terminal.expect("> ")
        terminal.send(CTRL_D)
        assert terminal.ended() == 0


def test_history_outlives_the_conversation(url: str, tmp_path: Path) -> None:
    with chat(tmp_path, "--url", url) as terminal:
        terminal.expect("> ")
        terminal.line("/system You are a pirate.")
        terminal.expect("system message is changed")
        terminal.line("/quit")
        assert terminal.ended() == 0
    kept = tmp_path / "strata" / "chat_history"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text().splitlines() == ["/system You are a pirate.", "/quit"]
    with chat(tmp_path, "--url", url) as terminal:
        terminal.expect("> ")
        terminal.send(UP + UP)
        terminal.expect("You are a pirate")
        terminal.send("\r")
        terminal.expect("system message is changed.*> ")
        terminal.send(CTRL_D)
        assert terminal.ended() == 0
    with chat(tmp_path / "other", "--url", url, "--no-history") as terminal:
        terminal.expect("> ")
        terminal.line("/quit")
        assert terminal.ended() == 0
    assert not (tmp_path / "other").exists()


def test_ctrl_c_stops_the_reply_and_keeps_the_conversation(url: str, tmp_path: Path) -> None:
    def in_flight() -> int:
        return int(httpx.get(f"{url}/v1/status").json()["activity"]["in_flight"])

    with chat(tmp_path, "--url", url, "--system", "No end.", "--temperature", "2", "--top-p", "1") as terminal:
        terminal.expect("> ")
        # Very hot text does not end soon.
        for _ in range(20):
            terminal.line(ENDLESS)
            terminal.expect(r"number\.\r\n(.{20})")
            terminal.send(CTRL_C)
            if "[stopped]" in terminal.expect(r"> |\[stopped\]").group():
                break
        else:
            pytest.fail("every reply ended by itself")
        deadline = time.monotonic() + 5
        while in_flight():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        terminal.expect("> ")
        terminal.send("half a line" + CTRL_C)
        terminal.expect("Ctrl-D or /quit ends")
        terminal.expect("> ")
        terminal.line("/system")
        terminal.expect("The system message: No end.")
        terminal.line("/exit")
        assert terminal.ended() == 0


@pytest.mark.parametrize("fold", [False, True])
def test_thinking_is_dimmed_or_folded(url: str, tmp_path: Path, fold: bool) -> None:
    """The demo model thinks when it is told to."""
    asked = {"messages": [{"role": "user", "content": "What is 2 + 3?"}], "temperature": 0,
             "chat_template_kwargs": {"enable_thinking": True}}  # fmt: skip
    message = httpx.post(f"{url}/v1/chat/completions", json=asked).json()["choices"][0]["message"]
    thought = message["reasoning_content"]
    assert thought
    with chat(tmp_path, "--url", url, "--temperature", "0", *(["--fold"] if fold else [])) as terminal:
        terminal.expect("> ")
        terminal.line("/think on")
        terminal.expect("Thinking is on.")
        begin = len(terminal.text)
        terminal.line("What is 2 + 3?")
        terminal.expect("> .*> ")
        shown = terminal.text[begin:]
        if fold:
            assert re.search(r"thinking \.\.\..*thought for \d+\.\d s", shown, re.DOTALL)
            assert thought not in plain(shown)
        else:
            assert "\x1b[2m" in shown
            assert f"{thought.strip()}\n\n{message['content']}" in plain(shown)
        assert message["content"] in plain(shown)
        terminal.line("/quit")
        assert terminal.ended() == 0


def test_an_engine_of_ones_own(tmp_path: Path, url: str) -> None:
    said = greedy(url, "Hello!")
    with chat(tmp_path, "--threads", "1", "--context", "512", "--temperature", "0") as terminal:
        terminal.expect("context 512 tokens")
        terminal.expect("> ")
        terminal.line("Hello!")
        terminal.expect(re.escape(said))
        terminal.expect("> ")
        terminal.send(CTRL_D)
        assert terminal.ended() == 0


def test_a_server_that_ends_in_the_middle_is_a_sentence(tmp_path: Path) -> None:
    with demo_server() as (url, pid), chat(tmp_path, "--url", url, "--temperature", "2", "--top-p", "1") as terminal:
        terminal.expect("> ")
        engine = int(subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()[0])
        os.kill(engine, signal.SIGSTOP)
        terminal.line(STORY)
        deadline = time.monotonic() + 10
        while not httpx.get(f"{url}/v1/status").json()["activity"]["in_flight"]:
            assert time.monotonic() < deadline
        os.kill(engine, signal.SIGKILL)
        terminal.expect(r"strata: The engine was killed by SIGKILL \(signal 9\) while .*it is being restarted")
        terminal.expect("> ")
        terminal.line("/quit")
        assert terminal.ended() == 0


def test_keys(tmp_path: Path) -> None:
    """A server with a key, asked without one, with a wrong one, and with the right one from a file."""
    command = [sys.executable, "-m", "strata.cli", "serve", "--port", "0", "--threads", "1", "--api-key", "right"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            found = re.search(r"http://\S+", child.stdout.readline())
            assert found is not None
            url = found.group()
            wrong, right = tmp_path / "wrong", tmp_path / "right"
            wrong.write_text("no\n")
            right.write_text("right\n")
            for words, key, said in (
                ([], "", "wants a key; set STRATA_API_KEY"),
                ([], "nonsense", "refuses the key"),
                (["--api-key-file", str(wrong)], "right", "refuses the key"),
            ):
                with chat(tmp_path, "--url", url, *words, key=key) as terminal:
                    terminal.expect(said)
                    assert terminal.ended() == 1
            for words, key in ((["--api-key-file", str(right)], ""), ([], "right,other")):
                with chat(tmp_path, "--url", url, *words, key=key) as terminal:
                    terminal.expect("strata-demo at.*> ")
                    terminal.send(CTRL_D)
                    assert terminal.ended() == 0
            history = tmp_path / "strata" / "chat_history"
            assert "right" not in (history.read_text() if history.exists() else "")
        finally:
            child.send_signal(signal.SIGINT)
            assert child.wait(30) == 0
