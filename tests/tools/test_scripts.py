"""The scripts in tools/: they pass on the real engine with the demo model, and notice every lie of a fake one."""

import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LYING_ENGINE = Path(__file__).parent / "lying_engine.py"
SEEDED = "temperature=0.8 top_k=40 seed=11"


def run(script: str, *words: str, folder: Path, timeout: float = 120) -> "subprocess.CompletedProcess[str]":
    """One script as a user starts it, with the engine's log in `folder`."""
    environment = {**os.environ, "BATCH_TEST_LOG": str(folder / "engine.log"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tools" / f"{script}.py"), *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )


@pytest.fixture(scope="session")
def fake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The fake engine as an executable file."""
    path = tmp_path_factory.mktemp("fake") / "engine"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{LYING_ENGINE}" "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("batch_test", ["--max-new", "48"]),
        ("batch_test", ["--max-new", "48", "--stagger-after", "8,16,24"]),
        ("batch_test", ["--n", "3", "--batch", "3", "--max-new", "48", "--promote-after", "12"]),
        ("batch_test", ["--n", "3", "--max-new", "32", "--keys", SEEDED, "--promote-after", "8"]),
        ("batch_test", ["--n", "8", "--batch", "8", "--max-new", "24", "--long-tokens", "200",
                        "--keys", f"{SEEDED} penalty_last_n=32 penalty_repeat=1.3 penalty_present=0.5"]),
        ("batch_interleave_test", ["--max-new", "96", "--long", "1500"]),
        # Above the least length of a root: no root may be made of a prompt without a system message.
        ("batch_interleave_test", ["--max-new", "48", "--long", "2600"]),
        ("parking_test", ["--max-new", "32", "--repeat", "12"]),
        ("batch_mtp_test", ["--max-new", "32"]),
    ],
)  # fmt: skip
def test_real_engine_passes(script: str, words: list[str], tmp_path: Path) -> None:
    done = run(script, *words, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all as it should be" in done.stdout


def test_real_server_passes(tmp_path: Path) -> None:
    done = run("early_close_test", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("ok  ") == 4


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("batch_test", ["--stagger-after", "4,8", "--promote-after", "9"]),
        ("batch_test", ["--n", "9", "--batch", "12", "--keys", "temperature=0.7 seed=3", "--long-tokens", "300"]),
        ("batch_interleave_test", ["--long", "1500", "--max-new", "60"]),
        ("parking_test", ["--repeat", "10"]),
        ("batch_mtp_test", []),
    ],
)
def test_honest_fake_passes(fake: str, script: str, words: list[str], tmp_path: Path) -> None:
    done = run(script, "--exe", fake, *words, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("lie", "script", "code", "said"),
    [
        ("token", "batch_test", 2, "FAIL  slot 1 and alone: token 4 differs"),
        ("early", "batch_test", 1, "'BT 1 5', but slot 1 is not decoding"),
        ("badm", "batch_test", 1, "'BADM 0 1 9' is no answer to a BGEN of slot 0"),
        ("miscount", "batch_test", 1, "but slot 0 got 20 tokens"),
        ("err", "batch_test", 1, "KV pool full"),
        ("hang", "batch_test", 1, "no line from the engine for 2 s (slot 1 is on the control lines)"),
        ("exit", "batch_test", 1, "ended with exit code 3"),
        ("deaf", "batch_test --promote-after 5", 1, "the request ended as 'length'"),
        ("late", "batch_test --promote-after 5", 1, "came after the read had begun"),
        ("noreused", "batch_interleave_test", 2, "FAIL  A's next turn said no REUSED"),
        ("less", "batch_interleave_test", 1, "of one request differ"),
        ("noyield", "batch_interleave_test", 2, "tokens of D: no YIELDED"),
        ("starve", "batch_interleave_test", 2, "FAIL  the other slots got 0 tokens"),
        ("keep", "batch_interleave_test", 2, "FAIL  D was read without a PP before its end"),
        ("mixed", "batch_interleave_test", 2, "FAIL  A's next turn in slot 0 and alone: token 0 differs"),
        ("nolog", "parking_test", 2, "FAIL  the log says what was restored: nothing"),
        ("copied", "parking_test", 2, "0 bytes of them not copied"),
        ("forget", "parking_test", 2, "FAIL  the follow-up from where it was parked, and live: token 0 differs"),
        ("nodrafts", "batch_mtp_test", 2, "0 of 20 drafts accepted"),
        ("short", "batch_mtp_test", 1, "finish length after 10 of 60 tokens"),
        ("over", "batch_mtp_test", 2, "a prompt of 502 in a context of 512: 12 of 11 tokens"),
    ],
)
def test_lies_are_noticed(fake: str, lie: str, script: str, code: int, said: str, tmp_path: Path) -> None:
    name, *words = script.split()
    words += ["--exe", fake, "--timeout", "2", "--max-new", "20" if name == "batch_test" else "60"]
    if name == "batch_interleave_test":
        words += ["--long", "1000"]
    if name == "parking_test":
        words += ["--repeat", "8", "--extra", f"--conversation-cache-mib 64 --lie {lie}"]
    else:
        words += ["--extra", f"--lie {lie}"]
    done = run(name, *words, folder=tmp_path)
    assert said in done.stdout, done.stdout + done.stderr
    assert done.returncode == code, done.stdout
    assert "Traceback" not in done.stderr


def test_configuration_of_the_server_is_taken(fake: str, tmp_path: Path) -> None:
    """A tokenizer directory, arguments, a relative exe, a mark at the file's beginning; every token in the dump."""
    from strata.cli.defaults import demo_model
    from strata.cli.main import main

    assert main(["tokenizer", str(demo_model()), str(tmp_path / "words")]) == 0
    config = {"exe": "engine", "args": ["--lie", "token"], "tokenizer": str(tmp_path / "words"), "lib_dirs": ["/x"],
              "cwd": str(Path(fake).parent)}  # fmt: skip
    (tmp_path / "c.json").write_text("\ufeff" + json.dumps(config), encoding="utf-8")
    done = run("batch_test", "--config", "c.json", "--max-new", "20", "--dump", "d.json", folder=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    dump = json.loads((tmp_path / "d.json").read_text())
    differ = [i for i, (a, b) in enumerate(zip(dump["alone"], dump["together"], strict=True)) if a != b]
    assert differ == [1]
    (tmp_path / "c.json").write_text("{")
    done = run("batch_test", "--config", "c.json", folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL: --config c.json cannot be used")
    done = run("batch_test", "--exe", "/nowhere/engine", folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL: cannot start /nowhere/engine")


@pytest.mark.parametrize("words", [["--n", "5"], ["--promote-after", "64"], ["--stagger-after", "a"]])
def test_wrong_options_are_a_sentence(words: list[str], tmp_path: Path) -> None:
    done = run("batch_test", *words, folder=tmp_path)
    assert done.returncode == 2
    assert f"error: {words[0]}" in done.stderr


class LeakyServer(http.server.BaseHTTPRequestHandler):
    """Answers every question alike; after a stream that was left, `leaks` says what is put before the answer."""

    leaks = ""
    left = False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        if not body["stream"]:
            text = (self.leaks if type(self).left else "") + "The sky is blue."
            self.wfile.write(json.dumps({"choices": [{"message": {"content": text}}]}).encode())
            return
        if "months" in body["messages"][0]["content"]:
            type(self).left = True
        for number in range(8):
            event = {"choices": [{"delta": {"content": f"{number} "}}]}
            self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def leaky_server() -> Iterator[str]:
    LeakyServer.left, LeakyServer.leaks = False, ""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), LeakyServer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("leaks", "expect", "code", "said"),
    [
        ("", "Blue", 0, "all as it should be"),
        ("January ", "blue", 2, "FAIL  after a stream that was left (1): 'January The sky"),
        ("", "green", 2, "FAIL  before: the word 'green'"),
    ],
)
def test_leaks_of_a_server_are_noticed(
    leaky_server: str, leaks: str, expect: str, code: int, said: str, tmp_path: Path
) -> None:
    LeakyServer.leaks = leaks
    done = run("early_close_test", leaky_server, "--expect", expect, folder=tmp_path)
    assert said in done.stdout, done.stdout + done.stderr
    assert done.returncode == code


def test_no_server_is_a_sentence(tmp_path: Path) -> None:
    done = run("early_close_test", "http://127.0.0.1:9", folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL: 127.0.0.1:9 does not answer")
    assert "Traceback" not in done.stderr
