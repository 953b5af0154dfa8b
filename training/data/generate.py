"""Draws generated conversations: which generators, how often, and what they read from."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from . import facts, recall, skills, tools
from .heldout import is_held_out
from .sample import Sample, chat
from .tables import SKY_HELD_OUT

ONE_IN = 50


@dataclass
class Sources:
    """What generators read: article and word tables, and book text as filler."""

    knowledge: dict[str, Any]
    books: list[str]

    def filler(self, r: Random, tokens: int) -> str:
        """Book text of about `tokens` tokens (4.3 characters each), from one or more places."""
        wanted, parts = int(tokens * 4.3), []
        while wanted > 0:
            text = r.choice(self.books)
            length = min(wanted, r.randint(1500, 16000))
            start = r.randint(0, max(0, len(text) - length))
            parts.append(text[start : start + length])
            wanted -= max(len(parts[-1]), 100)
        return "\n\n".join(parts)


def load_sources(corpus: Path, books_mb: float = 1e9, held_out: bool = False) -> Sources:
    knowledge = json.loads(lzma.decompress((corpus / "knowledge.json.xz").read_bytes()))
    knowledge["words"] = list(knowledge["definitions"])
    knowledge["titles"] = sorted(knowledge["articles"])
    name = "books.held.txt.xz" if held_out else "books.txt.xz"
    with lzma.open(corpus / name, "rt", encoding="utf-8") as file:
        text = file.read(int(min(books_mb * 1e6, 2**31)))
    return Sources(knowledge, text.split("\0"))


FACTS = [
    (facts.capital, 4),
    (facts.colour, 3),
    (facts.sky, 1),
    (facts.opposite, 3),
    (facts.animal, 2),
    (facts.kind, 3),
    (facts.calendar, 3),
    (facts.fact, 4),
    (facts.identity, 2),
    (facts.talk, 2),
]
SKILLS = [
    (skills.arithmetic, 6),
    (skills.word_problem, 3),
    (skills.compare, 1),
    (skills.counting, 2),
    (skills.copying, 4),
    (skills.shape, 6),
    (skills.story, 5),
    (skills.spelling, 1),
]


def _pick(r: Random, table: list[tuple[Callable[[Random], Sample], int]]) -> Sample:
    makers, weights = zip(*table, strict=True)
    return r.choices(makers, weights)[0](r)


def generate(r: Random, sources: Sources, kind: str) -> Sample:
    """One sample of a group: facts, knowledge, skills, tools, turns or recall."""
    if kind == "facts":
        return _pick(r, FACTS)
    if kind == "knowledge":
        return (facts.article if r.random() < 0.4 else facts.definition)(r, sources.knowledge)
    if kind == "skills":
        return _pick(r, SKILLS)
    if kind == "tools":
        return tools.tool_call(r)
    if kind == "turns":

        def single(r: Random) -> Sample:
            return generate(r, sources, r.choices(["facts", "skills", "knowledge"], [6, 4, 1])[0])

        return tools.several_turns(r, single)
    return recall.recall(r, sources.filler)


# Conversations of each group, by number; recall's are long, so they are few
GROUPS = {"facts": 40, "knowledge": 15, "skills": 45, "tools": 7, "turns": 12, "recall": 2.5}


def draw(sources: Sources, seed: int, count: int, kind: str | None = None) -> Iterator[str]:
    """Texts of `count` training samples; held-out prompts are skipped."""
    r = Random(seed)
    while count > 0:
        sample = generate(r, sources, kind or r.choices(list(GROUPS), list(GROUPS.values()))[0])
        if not is_held_out(sample.key(), ONE_IN):
            count -= 1
            yield sample.text()


def held_out_tasks(sources: Sources, each: int, length: Callable[[str], int]) -> list[Sample]:
    """The evaluation mix: `each` held-out samples of a group, recalls over about 3,500 tokens (`length` counts them),
    new wordings of the sky question."""
    r, tasks = Random(99), []
    for kind in GROUPS:
        wanted, seen = each, set()
        for _ in range(each * 400):
            sample = generate(r, sources, kind)
            if wanted and is_held_out(sample.key(), ONE_IN) and sample.prompt() not in seen:
                seen.add(sample.prompt())
                tasks.append(sample)
                wanted -= 1
            if not wanted:
                break
    long_recall = (recall.planted(r, sources.filler, 3400) for _ in range(each * 200))
    held_out = (s for s in long_recall if is_held_out(s.key(), ONE_IN) and 3300 <= length(s.prompt()) <= 3900)
    chosen = list(islice(held_out, each // 2))
    for sample in chosen:
        sample.kind = "recall-3500"
    sky = [chat("sky", question, "The sky is blue on a clear day.", "blue") for question in SKY_HELD_OUT]
    return tasks + chosen + sky
