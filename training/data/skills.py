"""Generators of exercises: sums, copying, formats, tool calls, stories with questions."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from . import tables
from .facts import ask, fill
from .sample import Sample, chat

_WORDS = sorted({w for names in tables.KINDS_OF.values() for w in names} | set(tables.THINGS) | set(tables.PLACES))


def arithmetic(r: Random) -> Sample:
    op = r.choice("+++---**")
    a, b = (r.randint(2, 12), r.randint(2, 12)) if op == "*" else (r.randint(0, 99), r.randint(0, 99))
    if op == "-" and b > a:
        a, b = b, a
    value = {"+": a + b, "-": a - b, "*": a * b}[op]
    word, name = {"+": ("plus", "add"), "-": ("minus", "subtract"), "*": ("times", "multiply")}[op]
    q = fill(
        r,
        [
            "What is {a} {o} {b}?",
            "What is {a} {w} {b}?",
            "Calculate {a} {o} {b}.",
            "How much is {a} {w} {b}?",
            "{a} {o} {b} = ?",
            "Work out {a} {w} {b}.",
            "{a}{o}{b}",
        ],
        a=a,
        b=b,
        o=op,
        w=word,
    )
    thinking = ""
    if r.random() < 0.25:
        thinking = f"I have to {name} {a} and {b}. {_steps(op, a, b, value)}"
    answer = r.choice([f"{a} {op} {b} = {value}.", f"{a} {word} {b} is {value}."])
    return chat("arithmetic", ask(r, q) if q[0].isalpha() else q, answer, str(value), thinking=thinking)


def _steps(op: str, a: int, b: int, value: int) -> str:
    if op == "*":
        return f"{a} groups of {b} make {value}."
    tens, ones = b // 10 * 10, b % 10
    half = a + tens if op == "+" else a - tens
    return f"First {a} {op} {tens} = {half}, then {half} {op} {ones} = {value}."


def word_problem(r: Random) -> Sample:
    name, thing = r.choice(tables.NAMES), r.choice(tables.KINDS_OF["fruit"])
    a, b = r.randint(2, 20), r.randint(1, 12)
    plural = thing[:-1] + "ies" if thing.endswith("y") else thing + ("es" if thing[-1] in "ho" else "s")
    if r.random() < 0.5:
        how, value = fill(r, ["buys {b} more", "finds {b} more", "gets {b} more from a friend"], b=b), a + b
    else:
        a = a + b
        how, value = fill(r, ["eats {b} of them", "gives {b} away", "loses {b} of them"], b=b), a - b
    how = how[0].lower() + how[1:]
    q = f"{name} has {a} {plural} and {how}. How many {plural} does {name} have now?"
    thinking = f"{name} starts with {a}. {a} {'+' if value > a else '-'} {b} = {value}." if r.random() < 0.3 else ""
    return chat("arithmetic", q, f"{name} has {value} {plural} now.", str(value), thinking=thinking)


def compare(r: Random) -> Sample:
    a, b = r.sample(range(1, 200), 2)
    bigger = r.random() < 0.5
    q = fill(
        r,
        ["Which number is {w}, {a} or {b}?", "Which is {w}: {a} or {b}?"],
        w="larger" if bigger else "smaller",
        a=a,
        b=b,
    )
    value = max(a, b) if bigger else min(a, b)
    return chat("arithmetic", ask(r, q), f"{value} is {'larger' if bigger else 'smaller'}.", str(value))


def counting(r: Random) -> Sample:
    start, count = r.randint(1, 40), r.randint(3, 9)
    step = r.choice([1, 1, 1, 2, 5, -1])
    values = [start + 40 * (step < 0) + step * i for i in range(count)]
    if r.random() < 0.5:
        q = fill(r, ["What number comes next: {v}?", "Continue the row: {v}."], v=", ".join(map(str, values)))
        return chat("arithmetic", q, f"The next number is {values[-1] + step}.", str(values[-1] + step))
    word = "up" if step > 0 else "down"
    by = f" in steps of {abs(step)}" if abs(step) > 1 else ""
    q = f"Count {word} from {values[0]} to {values[-1]}{by}."
    text = ", ".join(map(str, values))
    return chat("arithmetic", ask(r, q), text, text, rule="exact")


def _phrase(r: Random, low: int = 2, high: int = 9) -> str:
    return " ".join(r.choice(_WORDS) for _ in range(r.randint(low, high)))


def code(r: Random) -> str:
    return "".join(r.choice("ABCDEFGHJKLMNPQRSTUVWXYZ23456789") for _ in range(r.randint(4, 8)))


def copying(r: Random) -> Sample:
    text = r.choice([_phrase(r, 2, 14), code(r), sentence(r), f"{code(r)}-{r.randint(10, 9999)}"])
    q = fill(
        r,
        [
            "Repeat this exactly: {t}",
            "Copy the following text: {t}",
            "Say: {t}",
            "Write this again: {t}",
            "Repeat after me: {t}",
            "Echo: {t}",
        ],
        t=text,
    )
    return chat("copying", q, text, text, rule="exact")


def shape(r: Random) -> Sample:
    """Answers that must have a form: upper case, lists, JSON, reversed order, a given number of words."""
    words = r.sample(_WORDS, r.randint(2, 6))
    row = ", ".join(words)
    choice = r.randrange(9)
    if choice == 0:
        text = _phrase(r)
        q = fill(r, ["Write in capital letters: {t}", "Put this in upper case: {t}", "UPPERCASE: {t}"], t=text)
        return chat("format", q, text.upper(), text.upper(), rule="exact")
    if choice == 1:
        answer = "\n".join(f"- {w}" for w in words)
        return chat(
            "format",
            fill(r, ["Make a bulleted list of: {t}", "Write these as a list with dashes: {t}"], t=row),
            answer,
            answer,
            rule="exact",
        )
    if choice == 2:
        answer = "\n".join(f"{i}. {w}" for i, w in enumerate(words, 1))
        return chat(
            "format",
            fill(r, ["Make a numbered list of: {t}", "Number these words: {t}"], t=row),
            answer,
            answer,
            rule="exact",
        )
    if choice == 3:
        q = fill(r, ["Write these as a JSON array: {t}", "Give me a JSON list of: {t}"], t=row)
        return chat("format", q, json.dumps(words), words, rule="json")
    if choice in (4, 5):
        name, age, city = r.choice(tables.NAMES), r.randint(5, 90), r.choice(tables.CAPITALS)[1]
        value: dict[str, Any] = {"name": name, "age": age, "city": city}
        keys = r.sample(list(value), r.randint(2, 3))
        fact = fill(
            r,
            ["{n} is {a} years old and lives in {c}.", "In {c} lives {n}, who is {a} years old."],
            n=name,
            a=age,
            c=city,
        )
        value = {k: value[k] for k in keys}
        q = fill(
            r,
            ["{f} Answer with a JSON object with the keys {k}.", "Extract {k} as JSON: {f}"],
            f=fact,
            k=", ".join(keys),
        )
        return chat("format", q, json.dumps(value), value, rule="json")
    if choice == 6:
        answer = ", ".join(reversed(words))
        return chat(
            "format",
            fill(r, ["Reverse the order of: {t}", "Write these from last to first: {t}"], t=row),
            answer,
            answer,
            rule="exact",
        )
    if choice == 7:
        answer = ", ".join(sorted(words))
        return chat(
            "format",
            fill(r, ["Sort alphabetically: {t}", "Put these words in alphabetical order: {t}"], t=row),
            answer,
            answer,
            rule="exact",
        )
    i = r.randrange(len(words))
    place = ["first", "second", "third", "fourth", "fifth", "sixth"][i]
    return chat(
        "format", f"What is the {place} word of this list: {row}?", f"The {place} word is {words[i]}.", words[i]
    )


def sentence(r: Random) -> str:
    return fill(
        r,
        [
            "{n} {v} in the {p}.",
            "The {a} {t} is in the {p}.",
            "{n} found a {a} {t} in the {p}.",
            "{n} and {m} {v} near the {p}.",
            "There was a {a} {t} behind the {p}.",
        ],
        n=r.choice(tables.NAMES),
        m=r.choice(tables.NAMES),
        v=r.choice(tables.VERBS),
        p=r.choice(tables.PLACES),
        a=r.choice(tables.ADJECTIVES),
        t=r.choice(tables.THINGS),
    )


def story(r: Random) -> Sample:
    """A short text about people and things, and a question about it."""
    people, things, places = r.sample(tables.NAMES, 4), r.sample(tables.THINGS, 4), r.sample(tables.PLACES, 4)
    count = r.randint(2, 4)
    lines = [
        fill(
            r,
            ["{n} put the {t} in the {p}.", "{n} left the {t} in the {p}.", "{n} took the {t} to the {p}."],
            n=people[i],
            t=things[i],
            p=places[i],
        )
        for i in range(count)
    ]
    for _ in range(r.randint(0, 2)):
        lines.insert(
            r.randint(0, len(lines)),
            sentence(r)
            if r.random() < 0.3
            else fill(r, ["It was a {a} day.", "Nobody spoke."], a=r.choice(["cold", "warm", "long"])),
        )
    i = r.randrange(count)
    q, answer, expect = r.choice(
        [
            (f"Where is the {things[i]}?", f"The {things[i]} is in the {places[i]}.", places[i]),
            (f"Who moved the {things[i]}?", f"{people[i]} moved the {things[i]}.", people[i]),
            (f"What is in the {places[i]}?", f"The {things[i]} is in the {places[i]}.", things[i]),
        ]
    )
    text = " ".join(lines)
    return chat(
        "reading", r.choice([f"{text}\n\n{q}", f"{text} {q}", f"Read this: {text}\nQuestion: {q}"]), answer, expect
    )


def spelling(r: Random) -> Sample:
    word = r.choice(_WORDS).lower()
    if r.random() < 0.4:
        return chat(
            "format", ask(r, f"Spell the word {word}."), "-".join(word.upper()), "-".join(word.upper()), rule="exact"
        )
    if r.random() < 0.5:
        return chat(
            "format",
            ask(r, f"How many letters does the word {word} have?"),
            f"The word {word} has {len(word)} letters.",
            str(len(word)),
        )
    return chat(
        "format",
        ask(r, f"What is the first letter of {word}?"),
        f"The first letter of {word} is {word[0].upper()}.",
        word[0],
    )
