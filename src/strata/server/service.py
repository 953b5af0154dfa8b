"""What the HTTP application serves, and what it counts."""

import time
from dataclasses import dataclass, field

from strata.server.generation import Generator
from strata.server.guard import Access
from strata.server.records import Marks
from strata.server.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What a model's file says of it, where that is known. `native_context` in tokens, `nbytes` of all tensors."""

    architecture: str | None = None
    native_context: int | None = None
    parameters: int | None = None
    nbytes: int | None = None


@dataclass
class Service:
    """A model's generator, its supervised engine, and how it may be reached. Times in seconds, sizes in bytes.

    `aliases`: further names under which the model is listed.
    `settle_s`: how long an answer that streams may wait for its first event before its status is sent.
    """

    generator: Generator
    engine: Supervisor
    access: Access = Access()
    facts: ModelFacts = ModelFacts()
    aliases: tuple[str, ...] = ()
    keep_alive_s: float = 10.0
    settle_s: float = 1.0
    body_limit: int = 256 * 2**20
    body_s: float = 120.0
    started: float = field(default_factory=time.time)
    requests: int = 0
    """Requests that reached the engine's queue."""

    def __post_init__(self) -> None:
        self.engine.metrics.marks = Marks.of(self.generator.tokenizer)
