"""A real server on a real port over the real supervisor, with a scripted engine as the child process."""

import asyncio
import contextlib
import re
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from strata.server.app import create_app
from strata.server.generation import Generator
from strata.server.guard import Access
from strata.server.listen import HttpServer, bind
from strata.server.sampling import Sampling
from strata.server.service import Service
from strata.server.supervisor import Limits, Supervisor
from strata.text import Tokenizer
from strata.text.bytelevel import ALPHABET

FAKE_ENGINE = Path(__file__).parent / "scripted_engine.py"
TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    "{% if opens is defined %}<think>\n{% endif %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    "{% if reasoning_effort is defined %}{{ reasoning_effort }}{% endif %}"
)
QUICK = Limits(ready_s=5, silence_s=2, start_tries=3, retry_pause_s=0.1, quit_s=2)


def make_tokenizer(template: str | None = TEMPLATE) -> Tokenizer:
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    metadata: dict[str, Any] = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen35", "tokenizer.ggml.merges": [],
        "tokenizer.ggml.tokens": [*ALPHABET, *specials], "tokenizer.ggml.token_type": [1] * 256 + [3, 3, 3, 4, 4],
        "tokenizer.ggml.eos_token_id": 258,
    }  # fmt: skip
    if template is not None:
        metadata["tokenizer.chat_template"] = template
    return Tokenizer.from_metadata(metadata)


@dataclass
class Fake:
    """The command line of a scripted engine and what it was told."""

    record: Path
    mode: str = "normal"
    context: int = 512
    lanes: bool = False

    @property
    def command(self) -> list[str]:
        options = {"--record": str(self.record), "--mode": self.mode, "--context": str(self.context)}
        words = [word for option in options.items() for word in option]
        return [sys.executable, "-S", str(FAKE_ENGINE), *words, *(["--lanes"] if self.lanes else [])]

    def lines(self) -> list[str]:
        return self.record.read_text().splitlines() if self.record.exists() else []

    def pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines() if line.startswith("start ")]

    def requests(self) -> list[str]:
        """The requests sent so far, in the form GEN, whichever they had."""
        lines = [re.sub(r"^BGEN \d+", "GEN", line) for line in self.lines()]
        return [line for line in lines if line.startswith("GEN ")]

    def stops(self) -> list[str]:
        """The stops sent so far."""
        return [line for line in self.lines() if line.startswith("BSTOP " if self.lanes else "STOP")]


@pytest.fixture(params=["alone", "lanes"])
def fake(tmp_path: Path, request: pytest.FixtureRequest) -> Fake:
    """An engine of either kind: nobody should be able to tell the difference but by the time that answers take."""
    return Fake(tmp_path / "engine.record", lanes=request.param == "lanes")


@pytest.fixture
def one_at_a_time(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "engine.record")


@pytest.fixture
def with_lanes(tmp_path: Path) -> Fake:
    return Fake(tmp_path / "engine.record", lanes=True)


@dataclass
class Running:
    """A server in a thread of its own."""

    url: str
    fake: Fake
    engine: Supervisor
    server: HttpServer
    loop: asyncio.AbstractEventLoop
    failures: list[BaseException] = field(default_factory=list)

    def call(self, function: Callable[[], Any]) -> None:
        self.loop.call_soon_threadsafe(function)


@contextlib.contextmanager
def serving(
    fake: Fake, *, limits: Limits = QUICK, access: Access | None = None, parallel: int | None = None, **options: Any
) -> Iterator[Running]:
    """Start everything; on leaving, end it as a signal would and check that it ended well."""
    listener = bind("127.0.0.1", 0)
    started = threading.Event()
    box: list[Running] = []

    async def main() -> None:
        engine = Supervisor(fake.command, limits=limits, parallel=parallel)
        generator = Generator(engine, make_tokenizer(), name="tiny", defaults=Sampling(temperature=0))
        app = create_app(Service(generator, engine, access or Access(), **options))
        server = HttpServer(app, listener, on_end=lambda: engine.begin_drain(stop_after_s=1), drain_s=3)
        engine.launch()
        port = listener.getsockname()[1]
        box.append(Running(f"http://127.0.0.1:{port}", fake, engine, server, asyncio.get_running_loop()))
        started.set()
        try:
            await server.run()
        finally:
            await engine.close()

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            box[0].failures.append(error)
            started.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(10)
    try:
        yield box[0]
    finally:
        if thread.is_alive():
            box[0].call(box[0].server.end)
        thread.join(20)
        assert not thread.is_alive()
        assert not box[0].failures


@pytest.fixture
def running(fake: Fake) -> Iterator[Running]:
    with serving(fake) as server:
        yield server


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server with small limits for all the tests that only look at its answers."""
    with serving(Fake(tmp_path_factory.mktemp("engine") / "record", lanes=True), body_limit=5000, body_s=1) as server:
        yield server


@pytest.fixture(scope="session")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server with room for what takes many tokens of a byte each."""
    with serving(Fake(tmp_path_factory.mktemp("engine") / "record", lanes=True, context=4096)) as server:
        yield server


@contextlib.asynccontextmanager
async def supervised(fake: Fake, limits: Limits = QUICK, parallel: int | None = None) -> AsyncIterator[Supervisor]:
    engine = Supervisor(fake.command, limits=limits, parallel=parallel)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture(scope="session")
def helpers() -> Any:
    """The functions above, for tests that start things in their own way."""
    return {
        "Fake": Fake, "serving": serving, "supervised": supervised, "make_tokenizer": make_tokenizer, "QUICK": QUICK,
    }  # fmt: skip
