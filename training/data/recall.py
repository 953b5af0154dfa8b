"""Conversations about a long text: planted facts, lists of entries, passages to quote.

A fact far back is learnt only where its answer costs something often: most samples ask several questions about a text.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from . import tables
from .sample import Sample
from .skills import code

Filler = Callable[[Random, int], str]
Fact = tuple[str, str, str]  # the sentence that plants it and answers the question, the question, its value

_LEADS = [
    "{t}\n\n{q}",
    "Read the text and answer the question.\n\n{t}\n\nQuestion: {q}",
    "Remember what is said here.\n\n{t}\n\n{q}",
]


def fact(r: Random) -> Fact:
    """One fact to plant: a code, a place, a number or a password."""
    name, thing, place = r.choice(tables.NAMES), r.choice(tables.THINGS), r.choice(tables.PLACES)
    number = str(r.randint(100, 99999))
    subject, value, question = [
        (f"secret code of {name}", code(r), "What is the {s}?"),
        (f"{thing} of {name}", f"in the {place}", "Where is the {s}?"),
        (f"magic number of {name}", number, "What is the {s}?"),
        (f"password for the {place}", code(r), "What is the {s}?"),
    ][r.randrange(4)]
    sentence = f"The {subject} is {value}."
    return sentence, question.format(s=subject), value.removeprefix("in the ")


def _facts(r: Random, count: int) -> list[Fact]:
    """Facts with different questions."""
    return list({f[1]: f for f in (fact(r) for _ in range(count))}.values())


def _plant(r: Random, text: str, sentences: list[str]) -> str:
    pieces = text.split("\n\n")
    for sentence in sentences:
        pieces.insert(r.randint(0, len(pieces)), sentence)
    return "\n\n".join(pieces)


def _conversation(lead: str, text: str, pairs: list[tuple[str, str]]) -> list[dict[str, Any]]:
    turns = [{"role": "user", "content": lead.format(t=text, q=pairs[0][0])}]
    for i, (question, answer) in enumerate(pairs):
        if i:
            turns.append({"role": "user", "content": question})
        turns.append({"role": "assistant", "content": answer})
    return turns


def planted(r: Random, filler: Filler, tokens: int) -> Sample:
    """A fact planted somewhere in a long text of about `tokens` tokens, and the question about it at the end."""
    sentence, question, expect = fact(r)
    others = [
        f"The {w} of {n} is {code(r)}."
        for w, n in zip(("lucky word", "room key"), r.sample(tables.NAMES, 2), strict=True)
        if r.random() < 0.5
    ]
    text = _plant(r, filler(r, tokens), [sentence, *others])
    turns = _conversation(r.choice(_LEADS), text, [(question, sentence)])
    return Sample("recall", turns, expect, extra={"key": sentence + question})


def notes(r: Random, filler: Filler, tokens: int) -> Sample:
    """Several facts in a long text and several questions, one after the other."""
    facts = _facts(r, r.randint(3, 8 + tokens // 250))
    text = _plant(r, filler(r, tokens), [f[0] for f in facts])
    asked = r.sample(facts, min(len(facts), r.randint(2, 12)))
    turns = _conversation(r.choice(_LEADS), text, [(f[1], f[0]) for f in asked])
    return Sample("recall", turns, asked[-1][2], extra={"key": asked[-1][0] + asked[-1][1]})


def entries(r: Random, filler: Filler, tokens: int) -> Sample:
    """A list of names with numbers, words or codes, and questions about single entries; half of it is other text."""
    count = min(r.randint(6, 12 + tokens // 20), len(tables.NAMES))
    make = r.choice([lambda: code(r), lambda: str(r.randint(10, 9999)), lambda: r.choice(tables.THINGS)])
    rows = [(name, make()) for name in r.sample(tables.NAMES, count)]
    dash = r.choice([": ", " - ", " = ", " has "])
    lines = [f"{name}{dash}{value}" for name, value in rows]
    text = "\n".join(lines)
    if tokens > 400:
        rest = filler(r, tokens // 2)
        text = f"{text}\n\n{rest}" if r.random() < 0.7 else f"{rest}\n\n{text}"
    asked = r.sample(rows, min(len(rows), r.randint(3, 14)))
    question = r.choice(["What does the list say about {n}?", "What stands beside {n}?", "{n}?"])
    turns = _conversation(r.choice(_LEADS), text, [(question.format(n=n), f"{n}{dash}{v}") for n, v in asked])
    name, value = asked[-1]
    return Sample("recall", turns, value, "contains", extra={"key": "\n".join([*lines, name])})


def quote(r: Random, filler: Filler, tokens: int) -> Sample:
    """A passage of the text is asked for by its first words and repeated."""
    text = filler(r, tokens)
    words = text.split(" ")
    pairs = []
    for _ in range(r.randint(1, 3)):
        start, length = r.randint(0, max(0, len(words) - 60)), r.randint(15, 60)
        passage = " ".join(words[start : start + length]).strip()
        lead = " ".join(passage.split(" ")[: r.randint(4, 7)])
        asking = r.choice(['Quote the passage that begins with "{l}".', 'Go on from "{l}" as in the text.'])
        pairs.append((asking.format(l=lead), passage))
    turns = _conversation("{t}\n\n{q}", text, pairs)
    return Sample("quote", turns, pairs[-1][1], "exact", extra={"key": pairs[-1][1]})


def recall(r: Random, filler: Filler) -> Sample:
    """A training sample of one of the kinds above, over short and long texts."""
    tokens = int(r.choice([r.uniform(30, 400), r.uniform(300, 1600), r.uniform(1200, 3300)]))
    make = r.choices([planted, notes, entries, quote], [35, 30, 15, 20])[0]
    return make(r, filler, tokens)
