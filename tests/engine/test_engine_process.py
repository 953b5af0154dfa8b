"""The process as clients meet it: started, spoken to over pipes, stopped, left alone, killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engine_fakes import HANGS, RAISES, TURN, answer

import strata

SCRIPT = Path(__file__).parent / "fake_engine.py"
SOURCE = str(Path(strata.__file__).parent.parent)
LAUNCHER = Path(SOURCE).parent / "engine" / "strata"
PROMPT = [TURN, 3, 1, 4, 1, 5, TURN, 9, 2, 6]
WAIT_S = 30
Start = Callable[..., "Client"]


class Client:
    """A child process with pipes; every wait has a limit."""

    def __init__(self, tmp_path: Path, *words: str, slow: float = 0.0, watchdog: str = "60") -> None:
        self.log = tmp_path / "engine.log"
        self.head: list[str] = []
        env = {**os.environ, "PYTHONPATH": SOURCE, "STRATA_WATCHDOG_S": watchdog}
        command = [sys.executable, str(SCRIPT), "--slow", str(slow), "--serve", "--native", "fake", *words]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, bufsize=1, env=env
            )

    def send(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read(self, *until: str) -> list[str]:
        """Lines up to one that starts with one of `until`; the end of the output ends them too."""
        assert self.process.stdout
        lines = []
        for line in self.process.stdout:
            lines.append(line.rstrip("\n"))
            if line.startswith(until):
                break
        return lines

    def ask(self, prompt: list[int], max_new: int = 6, keys: str = "") -> list[str]:
        self.send(f"GEN {max_new} {keys} {','.join(map(str, prompt))}")
        return self.read("DONE", "ERR")

    def end(self) -> int:
        return self.process.wait(WAIT_S)


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    made: list[Client] = []
    yield made
    for client in made:
        client.process.kill()
        client.process.wait()
        for pipe in (client.process.stdin, client.process.stdout):
            assert pipe
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@pytest.fixture
def start(clients: list[Client], tmp_path: Path) -> Start:
    def started(*words: str, ready: bool = True, **settings: object) -> Client:
        client = Client(tmp_path, *words, **settings)  # type: ignore[arg-type]
        clients.append(client)
        if ready:
            client.head = client.read("READY")
        return client

    return started


def tokens(lines: list[str]) -> list[int]:
    return [int(line.split()[1]) for line in lines if line.startswith("T ")]


def test_a_session_over_pipes(start: Start) -> None:
    client = start("--max-context", "128", "--prefill", "4", "--batch", "4", "--pcie-frac", "0.2")
    info, ready = client.head
    assert ready == "READY 128 stop"
    values = dict(pair.split("=") for pair in info.split()[1:])
    assert info.startswith("INFO context=128 kv=bf16 ")
    assert info.endswith(f"engine={strata.__version__}")
    assert (values["spec"], values["batch_slots"], values["slot_cache"], values["lanes"]) == ("4", "4", "1", "1")
    lines = client.ask(PROMPT)
    assert tokens(lines) == answer(PROMPT, 6)
    assert [line.split()[0] for line in lines] == ["PP"] * 3 + ["T"] * 6 + ["DONE"]
    assert client.ask([1] * 119, 2) == ["ERR prompt (119 tokens) + max_new (2) exceeds the context (128)"]
    assert client.ask([]) == ["ERR bad request: the prompt is empty"]
    assert client.ask([1, RAISES])[-1].startswith("ERR internal error: ValueError(")
    assert tokens(client.ask(PROMPT)) == answer(PROMPT, 6), "the engine stays usable"
    client.send("QUIT")
    assert client.read("never") == []
    assert client.end() == 0
    log = client.log.read_text()
    assert log.count("--pcie-frac") == 1
    assert "--batch" not in log
    assert "a library writes to stdout" in log
    assert "Traceback" in log, "the reason of the failed request"


def test_one_slot_is_what_info_says_of_one(start: Start) -> None:
    client = start("--batch", "1", "--max-context", "128")
    assert " batch_slots=1 slot_cache=1 " in client.head[0]
    client.send(f"BGEN 0 3 {','.join(map(str, PROMPT))}")
    lines = client.read("BDONE", "ERR")
    assert tokens(lines) + [int(line.split()[2]) for line in lines if line.startswith("BT ")] == answer(PROMPT, 3)


def test_windows_line_ends_and_a_prompt_of_many_pieces(start: Start) -> None:
    client = start("--max-context", "200000", "--prefill", "1000000")
    prompt = [(n * 7) % 60 for n in range(150_000)]
    assert tokens(client.ask(prompt, 2)) == answer(prompt, 2)
    client.send("GEN 2 1,2\r")
    assert tokens(client.read("DONE", "ERR")) == answer([1, 2], 2)


def test_requests_sent_before_the_end_of_the_input_are_served(start: Start) -> None:
    client = start()
    client.process.stdin.write("GEN 3 1,2\nGEN 3 4,5")
    client.process.stdin.close()
    lines = client.read("never")
    assert tokens(lines) == answer([1, 2], 3) + answer([4, 5], 3)
    assert client.end() == 0


def test_stop_acts_within_a_request(start: Start) -> None:
    client = start("--prefill", "1", slow=0.05)
    client.send(f"GEN 200 {','.join(['1'] * 40)}")
    client.read("PP 3 ")
    client.send("STOP")
    lines = client.read("DONE")
    assert lines[-1].split()[5] == "cancel"
    assert len(lines) <= 4, "at most the windows in flight"
    client.send("GEN 200 1,2,3")
    begun = client.read("T ")
    client.send("STOP")
    rest = client.read("DONE")
    assert rest[-1].split()[5] == "cancel"
    assert len(rest) <= 4
    assert tokens(begun + rest) == answer([1, 2, 3], len(tokens(begun + rest)))
    client.send("STOP")
    assert tokens(client.ask([4, 5], 3)) == answer([4, 5], 3)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("busy", [False, True])
def test_a_signal_ends_the_process_after_the_window(start: Start, number: int, busy: bool) -> None:
    client = start(slow=0.05)
    if busy:
        client.send("GEN 200 1,2,3")
        client.read("T ")
    client.process.send_signal(number)
    lines = client.read("never")
    assert client.end() == 0
    assert not busy or lines[-1].split()[5] == "cancel"


def test_a_client_that_went_away_ends_the_process(start: Start) -> None:
    client = start(slow=0.02)
    client.send("GEN 200 1,2,3")
    client.read("T ")
    client.process.stdout.close()
    client.process.stdin.close()
    assert client.end() == 0
    assert "nobody reads" in client.log.read_text()
    assert "Traceback" not in client.log.read_text()


def test_a_killed_process_leaves_its_client_the_end_of_the_output(start: Start) -> None:
    client = start(slow=0.05)
    client.send("GEN 200 1,2,3")
    client.read("T ")
    client.process.kill()
    assert not any(line.startswith(("DONE", "ERR")) for line in client.read("never"))
    assert client.end() == -signal.SIGKILL


def test_a_stall_is_reported_and_ends_the_process(start: Start) -> None:
    client = start(watchdog="0.4")
    for _ in range(2):
        time.sleep(0.8)
        assert tokens(client.ask(PROMPT)) == answer(PROMPT, 6), "waiting for a request is no stall"
    lines = client.ask([1, 2, HANGS])
    assert lines[-1].startswith("ERR no progress for 0.")
    assert "a window of 3 rows at 0 of 3 tokens" in lines[-1]
    assert client.read("never")[-1].startswith("FATAL no progress")
    assert client.end() == 1
    assert "stalled" in client.log.read_text()
    assert "in forward" in client.log.read_text(), "with the stacks"


def test_a_slow_reader_is_no_stall(start: Start) -> None:
    client = start("--max-context", "30000", "--eos-ids", "-1", watchdog="0.4")
    client.send("GEN 12000 1,2,3")
    time.sleep(1.2)  # the pipe is full long before
    lines = client.read("DONE", "ERR")
    assert lines[-1].startswith("DONE 12000 3 ")
    assert len(tokens(lines)) == 12000


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--native", "missing"], 1, "missing: there is no such file."),
        (["--native", "broken"], 1, "internal error: ZeroDivisionError('a bug')"),
        (["--maximum"], 2, "--maximum is not an option of the engine"),
        (["--log", "/no/such/folder/x"], 2, "--log /no/such/folder/x cannot be written"),
    ],
)
def test_a_failed_start_says_why_and_ends(start: Start, words: list[str], code: int, sentence: str) -> None:
    client = start(*words, ready=False)
    lines = client.read("never")
    assert client.end() == code
    assert sentence in client.log.read_text()
    assert lines == ([f"FATAL {sentence}"] if code == 1 else [])
    assert ("Traceback" in client.log.read_text()) == ("broken" in words)


def test_a_wrong_variable_ends_the_start(start: Start) -> None:
    client = start(ready=False, watchdog="soon")
    client.read("never")
    assert client.end() == 2
    assert "STRATA_WATCHDOG_S='soon'" in client.log.read_text()


def test_the_log_goes_to_a_file_too(start: Start, tmp_path: Path) -> None:
    client = start("--log", str(tmp_path / "copy.log"))
    client.ask(PROMPT)
    client.send("QUIT")
    assert client.end() == 0
    assert "prompt 10 (0 reused, 10 read" in (tmp_path / "copy.log").read_text()


@pytest.mark.skipif(not LAUNCHER.exists(), reason="only a checkout has the executable file")
def test_the_executable_file_of_a_checkout(tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, LAUNCHER, "--help"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    if "is not installed here" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: strata engine --serve")
    assert os.access(LAUNCHER, os.X_OK)
