"""Generators of tool calls and of conversations of several turns."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

from . import tables
from .sample import Sample
from .skills import sentence


def _schema(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    body = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": body}}


def _city(r: Random) -> str:
    return r.choice(tables.CAPITALS)[1]


def _time(r: Random) -> str:
    return f"{r.randint(6, 21)}:{r.choice(['00', '15', '30', '45'])}"


_Tool = tuple[
    dict[str, Any], Callable[[Random], dict[str, str]], list[str], Callable[[Random, dict[str, str]], tuple[str, str]]
]

TOOLS: list[_Tool] = [
    (
        _schema("get_weather", "Get the weather of a city", city="Name of the city"),
        lambda r: {"city": _city(r)},
        [
            "What is the weather in {city}?",
            "How is the weather in {city} today?",
            "Will I need an umbrella in {city}?",
            "Tell me the weather for {city}.",
            "Is it warm in {city}?",
        ],
        lambda r, a: (
            lambda t, s: (json.dumps({"temperature": t, "sky": s}), f"In {a['city']} it is {t} degrees and {s}.")
        )(r.randint(-5, 35), r.choice(["sunny", "cloudy", "rainy", "windy"])),
    ),
    (
        _schema("get_time", "Get the local time of a city", city="Name of the city"),
        lambda r: {"city": _city(r)},
        ["What time is it in {city}?", "Tell me the time in {city}.", "How late is it in {city} now?"],
        lambda r, a: (lambda t: (t, f"It is {t} in {a['city']}."))(_time(r)),
    ),
    (
        _schema("add_reminder", "Save a reminder", text="What to remember", time="When to remind"),
        lambda r: {
            "text": r.choice(["call", "write to", "meet", "visit"]) + " " + r.choice(tables.NAMES),
            "time": _time(r),
        },
        [
            "Remind me to {text} at {time}.",
            "At {time} I must {text}, please remind me.",
            "Set a reminder for {time}: {text}",
        ],
        lambda r, a: ("saved", f"I will remind you at {a['time']} to {a['text']}."),
    ),
    (
        _schema("search", "Search the library", query="Words to look for"),
        lambda r: {"query": r.choice(tables.ADJECTIVES) + " " + r.choice(tables.THINGS)},
        ["Search for {query}.", "Look up {query} for me.", "Find something about {query}."],
        lambda r, a: (lambda n: (f"{n} results", f"I found {n} results for {a['query']}."))(r.randint(0, 40)),
    ),
    (
        _schema("send_message", "Send a message to a person", to="Name of the person", text="The message"),
        lambda r: {"to": r.choice(tables.NAMES), "text": sentence(r)},
        ["Send {to} this message: {text}", "Write to {to}: {text}", "Tell {to}: {text}"],
        lambda r, a: ("sent", f"I sent your message to {a['to']}."),
    ),
    (
        _schema("read_file", "Read a text file", path="Path of the file"),
        lambda r: {
            "path": f"{r.choice(tables.PLACES)}/{r.choice(tables.THINGS)}.{r.choice(['txt', 'md', 'py', 'json'])}"
        },
        ["Read {path}.", "What is in the file {path}?", "Open {path} and tell me what it says."],
        lambda r, a: (lambda s: (s, f"The file {a['path']} says: {s}"))(sentence(r)),
    ),
    (
        _schema(
            "convert_money",
            "Convert an amount of money",
            amount="The amount",
            source="From currency",
            target="To currency",
        ),
        lambda r: dict(
            zip(
                ("amount", "source", "target"),
                (str(r.randint(1, 900)), *r.sample(["EUR", "USD", "GBP", "JPY", "CHF"], 2)),
                strict=True,
            )
        ),
        ["Convert {amount} {source} to {target}.", "How much is {amount} {source} in {target}?"],
        lambda r, a: (lambda v: (str(v), f"{a['amount']} {a['source']} are {v} {a['target']}."))(r.randint(1, 2000)),
    ),
    (
        _schema("play_music", "Play music", artist="Whose music"),
        lambda r: {"artist": " ".join(r.sample(tables.NAMES, 2))},
        ["Play something by {artist}.", "I want to hear {artist}.", "Put on some music by {artist}."],
        lambda r, a: ("playing", f"Now playing music by {a['artist']}."),
    ),
]


def tool_call(r: Random) -> Sample:
    """A question with some tools at hand: the answer is a call, or the sentence after the tool's result."""
    schema, arguments, wordings, finish = r.choice(TOOLS)
    others = [t[0] for t in r.sample(TOOLS, r.randint(0, 3)) if t[0] is not schema]
    offered = [schema, *others]
    r.shuffle(offered)
    given, name = arguments(r), schema["function"]["name"]
    messages: list[dict[str, Any]] = [{"role": "user", "content": r.choice(wordings).format(**given)}]
    if r.random() < 0.3:
        messages.insert(
            0,
            {"role": "system", "content": r.choice(["You are a helpful assistant.", "Use the tools when they help."])},
        )
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": name, "arguments": given}}]}
    if r.random() < 0.6:
        thinking = f"I should call {name}." if r.random() < 0.2 else ""
        return Sample("tools", [*messages, call], {"name": name, "arguments": given}, "call", offered, thinking)
    result, answer = finish(r, given)
    messages += [call, {"role": "tool", "content": result}, {"role": "assistant", "content": answer}]
    return Sample("tools", messages, answer, "exact", offered)


def several_turns(r: Random, single: Callable[[Random], Sample]) -> Sample:
    """Questions one after the other, sometimes about what was said before."""
    turns: list[dict[str, Any]] = []
    name, thing, place = r.choice(tables.NAMES), r.choice(tables.THINGS), r.choice(tables.PLACES)
    colour = r.choice(tables.KINDS_OF["colour"])
    told = r.choice(
        [
            (f"My name is {name}.", f"Nice to meet you, {name}!", "What is my name?", f"Your name is {name}.", name),
            (
                f"I left my {thing} in the {place}.",
                "I will remember that.",
                f"Where is my {thing}?",
                f"Your {thing} is in the {place}.",
                place,
            ),
            (
                f"My favourite colour is {colour}.",
                f"{colour.capitalize()} is a beautiful colour.",
                "What is my favourite colour?",
                f"Your favourite colour is {colour}.",
                colour,
            ),
        ]
    )
    if r.random() < 0.5:
        turns += [{"role": "user", "content": told[0]}, {"role": "assistant", "content": told[1]}]
    remembered = bool(turns)
    for _ in range(r.randint(1, 4)):
        turns += single(r).messages[-2:]
    if remembered and r.random() < 0.7:
        turns += [{"role": "user", "content": told[2]}, {"role": "assistant", "content": told[3]}]
        return Sample("turns", turns, told[4])
    last = single(r)
    return Sample(last.kind, [*turns, *last.messages[-2:]], last.expect, last.rule, thinking=last.thinking)
