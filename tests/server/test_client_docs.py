"""The blocks of docs/clients.md do what they are there for: each is run against the demo model."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from demo_server import demo_server

DOCS = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8080"
# One process for all blocks in Python: some of the packages take seconds to import.
RUN_ALL = """
import contextlib, io, json, sys
said = []
for block in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        exec(compile(block, block, "exec"), {"__name__": "__main__"})
    said.append(shown.getvalue())
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with demo_server() as (url, _):
        yield url


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """`strata` and `python` are those of this interpreter, and no setting of the user's is in the way."""
    for name, words in (("strata", "-m strata.cli"), ("python", "")):
        script = tmp_path / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
        script.chmod(0o755)
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "ANTHROPIC_"))}
    return mine | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "PYTHONWARNINGS": "ignore",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }  # fmt: skip


def test_every_block_names_the_address() -> None:
    assert {kind for kind, _ in BLOCKS} == {"sh", "python", "text"}
    assert all(ADDRESS in text for _, text in BLOCKS)


@pytest.mark.parametrize("text", [text for kind, text in BLOCKS if kind == "sh"])
def test_commands(text: str, url: str, environment: dict[str, str]) -> None:
    command = ["sh", "-e", "-c", text.replace(ADDRESS, url)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "error" not in done.stdout.lower().replace('"error":null', "")


def test_programs(url: str, environment: dict[str, str]) -> None:


    blocks = [text.replace(ADDRESS, url) for kind, text in BLOCKS if kind == "python"]
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL], input=json.dumps(blocks), env=environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert len(said) == len(blocks)
    assert all(len(each.strip()) > 3 for each in said), said
