"""What the commands share: a model's file opened far enough to talk to it, and the engine started for it."""

import argparse
import asyncio
import contextlib
import math
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from rich.console import Console

from strata import families, logs, settings
from strata.cli.defaults import demo_model
from strata.engine.opening import tokenizer_of
from strata.server.generation import Ask, Event, Generator
from strata.server.sampling import Sampling
from strata.server.supervisor import MOST_WAITING, Limits, Supervisor
from strata.text import Tokenizer
from strata.units import bytes_text, count_text
from strata.weights import Checkpoint, open_checkpoint

Show = Callable[[Event], None]
T = TypeVar("T")


@dataclass(frozen=True)
class ModelCard:
    """A model file: its name in the API, its tokenizer, its size, the longest conversation it was made for."""

    name: str
    path: Path
    tokenizer: Tokenizer
    parameters: int
    nbytes: int
    architecture: str | None = None
    native_context: int | None = None

    def __str__(self) -> str:
        return f"{self.name} ({count_text(self.parameters)} parameters, {bytes_text(self.nbytes)})"


def model_name(path: Path) -> str:
    """The file's name without its ending and shard number."""
    return re.sub(r"-\d{5}-of-\d{5}$", "", path.stem if path.is_file() else path.name)


def parameters(checkpoint: Checkpoint) -> int:
    """Values in all tensors together."""
    return sum(math.prod(info.shape) for info in checkpoint.tensors.values())


def read_card(path: Path) -> ModelCard:
    """Open a model file for its tokenizer and size. Raises WeightsError."""
    with open_checkpoint(path) as checkpoint:
        tokenizer = tokenizer_of(checkpoint, path)
        nbytes = sum(info.nbytes for info in checkpoint.tensors.values())
        found = families.describe(checkpoint)
        context = found.spec.context_length if found.spec is not None else None
        return ModelCard(model_name(path), path, tokenizer, parameters(checkpoint), nbytes, found.family, context)


def card_for(options: argparse.Namespace) -> ModelCard:
    """The model that the options name, or the demo model."""
    return read_card(Path(options.model) if options.model else demo_model())


def engine_command(path: Path, options: argparse.Namespace) -> list[str]:
    """The command line of the engine process."""
    command = [sys.executable, "-m", "strata.cli", "engine", "--serve", "--native", str(path)]
    command += ["--threads", str(options.threads)]
    if options.context is not None:
        command += ["--max-context", str(options.context)]
    if options.kv is not None:
        command += ["--kv", options.kv]
    return command


def supervisor_for(
    path: Path, options: argparse.Namespace, parallel: int | None = None, max_waiting: int | None = None
) -> Supervisor:
    """The supervisor of an engine for this file, with the limits of the environment."""
    limits = Limits(
        ready_s=settings.read("STRATA_ENGINE_READY_S"), silence_s=settings.read("STRATA_ENGINE_SILENCE_S"),
        max_waiting=MOST_WAITING if max_waiting is None else max_waiting,
    )  # fmt: skip
    return Supervisor(engine_command(path, options), limits=limits, parallel=parallel)


def sampling(options: argparse.Namespace) -> Sampling:
    """The sampling that the options ask for; what they leave open is the default."""
    given = {name: getattr(options, name) for name in ("temperature", "top_p", "top_k", "min_p", "seed")}
    return Sampling(**{name: value for name, value in given.items() if value is not None})


def set_up_logs(options: argparse.Namespace, default: str) -> None:
    """Log to stderr at the level asked for."""
    logs.setup(options.log_level or default)


@contextlib.contextmanager
def progress(text: str) -> Iterator[None]:
    """Shows on a terminal's stderr that something long is going on; elsewhere nothing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(text):
        yield


class Session:
    """An engine of one's own for a command of the terminal: started here, asked from synchronous code, ended here.

    Ctrl-C during `run` cancels what runs (the engine gets STOP) and raises KeyboardInterrupt. SIGTERM does so too, but
    raises SystemExit: the command ends, and its engine with it.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._runner = asyncio.Runner()
        self.card = card_for(options)
        self._engine: Supervisor | None = None
        self._options = options
        self._task: asyncio.Task[Any] | None = None
        self._closing = False
        self._old_handler: Any = None

    def __enter__(self) -> "Session":
        with contextlib.suppress(ValueError):  # outside the main thread, which alone may set handlers
            self._old_handler = signal.signal(signal.SIGTERM, self._terminate)
        try:
            with progress(f"Loading {self.card}"):
                self.context = self._wait(self._start())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def _start(self) -> int:
        self._engine = supervisor_for(self.card.path, self._options)
        self.generator = Generator(self._engine, self.card.tokenizer, name=self.card.name)
        return await self._engine.start()

    def close(self) -> None:
        """End the engine."""
        self._closing = True
        if self._engine is not None:
            self._runner.run(self._engine.close())
            self._engine = None
        self._runner.close()
        if self._old_handler is not None:
            signal.signal(signal.SIGTERM, self._old_handler)
            self._old_handler = None

    def run(self, ask: Ask, show: Show) -> None:
        """One generation; each event is given to `show`."""
        self._wait(self._generate(ask, show))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        async def main() -> T:
            self._task = asyncio.current_task()
            try:
                return await work
            finally:
                self._task = None

        try:
            return self._runner.run(main())
        except asyncio.CancelledError:
            raise SystemExit(128 + signal.SIGTERM) from None

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if self._task is not None:
            self._runner.get_loop().call_soon_threadsafe(self._task.cancel)
        elif not self._closing:
            raise SystemExit(128 + number)

    async def _generate(self, ask: Ask, show: Show) -> None:
        prepared = await self.generator.prepare(ask)
        async with contextlib.aclosing(self.generator.events(prepared)) as events:
            async for event in events:
                show(event)
