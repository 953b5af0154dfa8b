"""Random schedules (`schedules`), on a fake model by the thousand and on the shipped one, each against itself alone.

`pytest tests/engine/test_schedules.py --schedule-minutes 60` runs new ones for an hour.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from engine_fakes import TURN, FakeModel
from schedule_grammars import AFTER, FAKE_TEXTS, FORMS, fake_tokenizer
from schedule_slots import SlotSchedule
from schedules import Schedule, alone

import strata
from strata.engine.constraint import Grammars
from strata.engine.opening import open_tokenizer
from strata.model import Model, Segment, load


class FakeWorld:
    """The model of hashes: thousands of windows a second."""

    context = 600
    turn = TURN
    words = range(40)
    after = AFTER
    forms = FORMS

    def __init__(self) -> None:
        self.model = FakeModel(self.context)
        self.grammars = Grammars(fake_tokenizer, self.model.vocab_size, self.model.eos_ids)

    def alone(self, prompt: Sequence[int], count: int, keys: str) -> list[int]:
        return alone(FakeModel(self.context), prompt, count, keys, self.context, FAKE_TEXTS)


class Watched:
    """A real model that calls `before` at each window."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.before = lambda rows: None

    def __getattr__(self, name: str) -> object:
        return getattr(self._model, name)

    def forward(self, segments: Sequence[Segment]) -> object:
        self.before(sum(len(segment.tokens) for segment in segments))
        return self._model.forward(segments)


class DemoWorld:
    """The shipped model in C++: everything but the fakes."""

    context = 600
    forms = [form for form in FORMS if form.grammar.kind == "regex"]  # its vocabulary can write a choice in many ways

    def __init__(self) -> None:
        path = Path(strata.__file__).parent / "data" / "strata-demo.gguf"
        model, tokenizer = load(path, context=self.context, threads=1), open_tokenizer(path)
        self.model = Watched(model)
        self.grammars = Grammars(lambda: tokenizer, model.vocab_size, model.eos_ids)
        types = tokenizer.vocabulary.types
        self._texts = [tokenizer.token_bytes(n) if types[n] == 1 else None for n in range(tokenizer.size)]
        self._texts += [None] * (model.vocab_size - tokenizer.size)
        after = tokenizer.id_of("</think>")
        assert after is not None
        self.after = after
        assert model.turn_id is not None
        self.turn = model.turn_id
        self.words = range(300, 360)

    def alone(self, prompt: Sequence[int], count: int, keys: str) -> list[int]:
        return alone(self.model._model, prompt, count, keys, self.context, self._texts)


def lives(
    world: FakeWorld | DemoWorld, directory: Path, known: int, minutes: float, kind: type[Schedule] = Schedule
) -> dict[str, int]:
    """Run the `known` schedules, or new ones for so long; what happened in all of them."""
    seed = random.SystemRandom().randrange(2**31) if minutes else 0  # several may run at once
    end = time.monotonic() + 60 * minutes
    happened: dict[str, int] = {}
    while time.monotonic() < end if minutes else seed < known:
        schedule = kind(world, seed, directory / str(seed))
        schedule.run()
        for name, count in schedule.counts.items():
            happened[name] = happened.get(name, 0) + count
        seed += 1
    return happened


def test_schedules_of_a_fake_model(tmp_path: Path, schedule_minutes: float) -> None:
    happened = lives(FakeWorld(), tmp_path, 90, schedule_minutes / 3)
    assert min(happened.values()) > 10, f"the schedules do not try everything: {happened}"


def test_schedules_of_slots_and_control_lines(tmp_path: Path, schedule_minutes: float) -> None:
    happened = lives(FakeWorld(), tmp_path, 60, schedule_minutes / 3, SlotSchedule)
    assert min(happened.values()) > 2, f"the schedules do not try everything: {happened}"


@pytest.mark.slow
def test_schedules_of_the_shipped_model(tmp_path: Path, schedule_minutes: float) -> None:
    happened = lives(DemoWorld(), tmp_path, 8, schedule_minutes / 3)
    assert happened["resumed"] > 5, happened
    assert happened["drafts"] > happened["grammar_drafts"] > 0
