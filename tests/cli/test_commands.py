"""`strata chat`, `generate`, `serve` and `inspect` as a user runs them."""

import argparse
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import gguf
import httpx
import numpy as np
import pytest

import strata
from strata.cli.main import COMMANDS, main
from strata.cli.model import model_name
from strata.cli.talk import Conversation

CLI = [sys.executable, "-m", "strata.cli"]


def run(*words: str, **options: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([*CLI, *words], capture_output=True, text=True, timeout=60, **options)


def test_help_is_light() -> None:
    code = """
import sys
from strata.cli.main import build_parser
build_parser().format_help()
heavy = {"numpy", "torch", "tokenizers", "jinja2", "starlette", "uvicorn", "rich", "asyncio"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    shown = run("--help")
    assert shown.returncode == 0
    assert all(command in shown.stdout for command in COMMANDS)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["serv"], 2, "There is no command 'serv'; did you mean 'serve'?"),
        (["quux"], 2, "the commands are serve, chat"),
        (["serve", "--port", "x"], 2, "'x' is not a whole number from 0 to 65535"),
        (["serve", "--prot", "1"], 2, "Unrecognized arguments: --prot 1; did you mean --port? See strata serve"),
        (["serve", "--ctx-size", "9"], 2, "--ctx-size 9; did you mean --context? See strata serve --help."),
        (["chat", "model.gguf"], 2, "model.gguf; did you mean --model? See strata chat --help."),
        (["serve", "--quux"], 2, "Unrecognized arguments: --quux. See strata serve --help."),
        (["serve", "--context", "5"], 2, "'5' is not a whole number from 16 to 16777216"),
        (["serve", "--allowed-host", "http://box"], 2, "'http://box' is no host name; write it without scheme"),
        (["chat", "--url", "http://127.0.0.1:1", "--log-level", "info"], 2, "--log-level is for an engine"),
        (["serve", "--host", "0.0.0.0"], 2, "set a key with --api-key"),
        (["serve", "--api-key-file", "/nowhere"], 2, "/nowhere: the file of API keys cannot be read"),
        (["serve", "--cors-origin", "*"], 2, "every web page"),
        (["serve", "--cors-origin", "example.org"], 2, "'example.org' is no origin"),
        (["serve", "--max-waiting", "0"], 2, "'0' is not a whole number from 1 to 1048576"),
        (["generate", "x", "--model", "/nowhere.gguf"], 1, "/nowhere.gguf"),
        (["inspect", "/nowhere.gguf"], 1, "/nowhere.gguf"),
        (["engine"], 2, "--serve is missing"),
        (["generate", "x", "--temperature", "nan"], 2, "'nan' is not a number from 0 to 100"),
    ],
)
def test_mistakes_are_one_sentence(words: list[str], code: int, said: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(words) == code
    shown = capfd.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("strata")
    assert said in shown.err
    assert "Traceback" not in shown.err


def test_no_demo_model_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from strata.cli import defaults
    from strata.errors import UsageError

    (tmp_path / "data").mkdir()
    monkeypatch.setattr(strata, "__file__", str(tmp_path / "__init__.py"))
    with pytest.raises(UsageError, match="no demo model.*--model"):
        defaults.demo_model()
    (tmp_path / "data" / "strata-demo-q8.gguf").touch()
    assert defaults.demo_model().name == "strata-demo-q8.gguf"


def test_generate(fake_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "say Grüße", "--chat", "--temperature", "0", "--model", "m"]) == 0
    assert capfd.readouterr().out == "Grüße\n"
    assert main(["generate", "user\nsay abcdef", "--max-tokens", "3", "--model", "m"]) == 0
    assert capfd.readouterr().out == "abc\n"
    assert main(["generate", "think about", "--chat", "--model", "m"]) == 0
    assert capfd.readouterr().out == "about\n"
    assert main(["generate", "say one two", "--chat", "--stop", "e t", "--model", "m"]) == 0
    assert capfd.readouterr().out == "on\n"
    assert main(["generate", "keys", "--chat", "--seed", "7", "--top-k", "3", "--model", "m"]) == 0
    assert {"seed=7", "top_k=3", "temperature=1.0"} <= set(capfd.readouterr().out.split())


def test_generate_from_standard_input_and_errors(
    fake_model: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("user\nsay piped"))
    assert main(["generate", "-", "--model", "m"]) == 0
    assert capfd.readouterr().out == "piped\n"
    assert main(["generate", "die", "--chat", "--model", "m"]) == 1
    shown = capfd.readouterr()
    assert "killed by SIGKILL" in shown.err
    assert "Traceback" not in shown.err


def test_chat_through_a_pipe(
    fake_model: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["say hello", "/think off", "prompt me", "two\\", "lines", "/nonsense", "/reset", "prompt", "/exit", "no"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(lines) + "\n"))
    assert main(["chat", "--system", "Be brief.", "--model", "m"]) == 0
    said = capfd.readouterr().out
    assert said.startswith("hello\nThinking is off.\n")
    # The second prompt holds the first exchange; after /reset only the system message is left.
    assert "user\nsay hello\nassistant\nhello\nuser\nprompt me\nassistant\n" in said
    assert "There is no such command" in said
    assert said.endswith("The conversation starts anew.\nsystem\nBe brief.\nuser\nprompt\nassistant\n\n")
    sent = [line for line in fake_model.read_text().splitlines() if line.startswith("GEN")]
    assert len(sent) == 4
    ids = [int(number) for number in sent[2].split()[-1].split(",")]
    assert b"two\nlines" in bytes(number for number in ids if number < 256)


def test_chat_goes_on_after_an_error(
    fake_model: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("die\nsay still here\n"))
    assert main(["chat", "--model", "m"]) == 0
    shown = capfd.readouterr()
    assert "killed by SIGKILL" in shown.err
    assert "still here" in shown.out


def test_conversation_commands() -> None:
    talk = Conversation(None, None)
    assert talk.command("/exit") is None
    assert talk.command("/think on") == "Thinking is on."
    assert talk.thinking is True
    assert talk.command("/think maybe") == "/think takes on, off or auto, not 'maybe'."


def _in_child(record: Path, *words: str, mode: str = "normal") -> "subprocess.Popen[str]":
    """A command in a process of its own, with the scripted engine in the engine's place."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import conftest, pytest, pathlib
with pytest.MonkeyPatch.context() as patch:
    conftest.fake_model.__wrapped__(pathlib.Path({str(record.parent)!r}), patch)
    from strata.cli import model
    command = [*model.engine_command(None, None), "--mode", {mode!r}]
    patch.setattr(model, "engine_command", lambda path, options: command)
    from strata.cli.main import main
    sys.exit(main([*{list(words)!r}, "--model", "m"]))
"""
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_says_where_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with _in_child(tmp_path / "record", "serve", "--port", "0") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        watchdog = threading.Timer(30, child.kill)
        watchdog.start()
        line = child.stdout.readline()
        match = re.fullmatch(
            r"Strata \S+ serves tiny \(52\.0 M parameters, 30\.0 MiB\) at (http://127\.0\.0\.1:\d+) with a context of "
            r"512 tokens\n", line,
        )  # fmt: skip
        assert match is not None, line + child.stderr.read()
        with urllib.request.urlopen(f"{match.group(1)}/health", timeout=10) as answer:
            assert answer.status == 200
        os.kill(child.pid, number)
        assert child.wait(20) == 0
        watchdog.cancel()
        assert "Traceback" not in child.stderr.read()
    assert (tmp_path / "record").read_text().splitlines()[-1] == "quit"


def test_serve_ends_at_once_on_the_second_interrupt(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with _in_child(record, "serve", "--port", "0") as child:
        assert child.stdout is not None
        assert child.stderr is not None
        watchdog = threading.Timer(30, child.kill)
        watchdog.start()
        url = re.search(r"http://\S+", child.stdout.readline())
        assert url is not None
        body = {"messages": [{"role": "user", "content": "slow 400"}]}
        address = f"{url.group()}/v1/chat/completions"
        asking = threading.Thread(target=lambda: httpx.post(address, json=body, timeout=30))
        asking.start()
        while "GEN" not in record.read_text():
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(1)
        os.kill(child.pid, signal.SIGINT)
        assert child.wait(4) == 0
        asking.join(10)
        watchdog.cancel()
        said = child.stderr.read()
        assert "requests in progress (1) have 7 s to finish; Ctrl-C again ends them at once" in said
        assert "Traceback" not in said
    assert record.read_text().splitlines()[-3:] == ["STOP", "QUIT", "quit"]


@pytest.mark.parametrize("during", ["loading", "generating"])
def test_sigterm_ends_the_engine_too(tmp_path: Path, during: str) -> None:
    record = tmp_path / "record"
    mode = "normal" if during == "generating" else "never"
    with _in_child(record, "generate", "--chat", "slow 400", mode=mode) as child:
        wanted = "GEN" if during == "generating" else "start"
        deadline = time.monotonic() + 30
        while not (record.exists() and wanted in record.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(child.pid, signal.SIGTERM)
        assert child.wait(20) == 128 + signal.SIGTERM
        assert child.stderr is not None
        assert "Traceback" not in child.stderr.read()
    pid = int(record.read_text().split()[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_interrupted_reply_stops_the_engine_and_the_chat_goes_on(
    fake_model: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("slow 400\nsay after\n"))

    def interrupt() -> None:
        while not (fake_model.exists() and "GEN" in fake_model.read_text()):
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    assert main(["chat", "--model", "m"]) == 0
    shown = capfd.readouterr()
    assert "[stopped]" in shown.err
    assert shown.out.rstrip().endswith("after")
    assert "STOP" in fake_model.read_text()


def test_inspect_of_an_unknown_architecture(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd-00001-of-00001.gguf"
    writer = gguf.GGUFWriter(str(path), "oddity")
    writer.add_tensor("a.weight", np.zeros((4, 32), np.float32))
    writer.add_tensor("b.weight", np.zeros((2, 32), np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert main(["inspect", str(path)]) == 1
    said = capfd.readouterr().out
    assert said.startswith("odd: oddity, 192 parameters in 2 tensors, 640 B, gguf, 1 file\n")
    assert re.search(r"F32\W+1\W+512 B", said)
    assert re.search(r"F16\W+1\W+128 B", said)
    assert "This model cannot run here." in said
    assert model_name(path) == "odd"


@pytest.mark.parametrize("command", [["generate", "x"], ["chat"], ["serve", "--port", "0"]])
def test_interrupted_while_loading(
    fake_model: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    from strata.cli import model as cli_model

    slow = [*cli_model.engine_command(Path(), argparse.Namespace()), "--mode", "never"]
    monkeypatch.setattr(cli_model, "engine_command", lambda path, options: slow)

    def interrupt() -> None:
        while not fake_model.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    assert main([*command, "--model", "m"]) == (0 if command[0] == "serve" else 130)
    assert "Traceback" not in capfd.readouterr().err
    pid = int(fake_model.read_text().split()[1])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_engine_that_refuses_ends_the_command(
    fake_model: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from strata.cli import model as cli_model

    refusing = [*cli_model.engine_command(Path(), argparse.Namespace()), "--mode", "fatal"]
    monkeypatch.setattr(cli_model, "engine_command", lambda path, options: refusing)
    for command in (["generate", "x"], ["serve", "--port", "0"]):
        assert main([*command, "--model", "m"]) == 1
        assert capfd.readouterr().err.endswith("strata: tiny.gguf is truncated.\n")
