"""Generators of questions about common knowledge, words, the model itself, and small talk."""

from __future__ import annotations

from random import Random
from typing import Any

from . import tables
from .sample import Sample, chat

_OPENERS = [
    "",
    "",
    "",
    "",
    "Please tell me: ",
    "Quick question: ",
    "I would like to know: ",
    "Can you tell me this? ",
    "Hi! ",
    "Hello. ",
    "One question: ",
    "Tell me, ",
    "I wonder: ",
    "Help me out: ",
    "My child asks: ",
]


def ask(r: Random, question: str) -> str:
    """A question with one of many small variations of wording."""
    opener = r.choice(_OPENERS)
    if opener.endswith((": ", ", ")) and question.split()[0] in ("What", "Which", "How", "Why", "Who", "Where", "Is"):
        question = question[0].lower() + question[1:]
    text = opener + question
    if r.random() < 0.08:
        text = text.rstrip("?.")
    if r.random() < 0.08:
        text = text.lower()
    if r.random() < 0.06:
        text += r.choice([" Thanks!", " Thank you.", " Answer briefly.", " Please."])
    return text


def fill(r: Random, templates: list[str], **values: Any) -> str:
    text = r.choice(templates).format(**values)
    return text[0].upper() + text[1:]


def capital(r: Random) -> Sample:
    country, city = r.choice(tables.CAPITALS)
    if r.random() < 0.2:
        q = fill(
            r,
            [
                "Which country has the capital {c}?",
                "{c} is the capital of which country?",
                "Of which country is {c} the capital?",
            ],
            c=city,
        )
        return chat("facts", ask(r, q), f"{city} is the capital of {country}.", country.removeprefix("the "))
    q = fill(
        r,
        [
            "What is the capital of {c}?",
            "What's the capital city of {c}?",
            "Which city is the capital of {c}?",
            "Name the capital of {c}.",
            "Tell me the capital of {c}.",
            "What is {c}'s capital?",
            "I am travelling to {c}. What is its capital?",
            "Do you know the capital of {c}?",
        ],
        c=country,
    )
    return chat("facts", ask(r, q), f"The capital of {country} is {city}.", city)


def colour(r: Random) -> Sample:
    thing, hue = r.choice(tables.COLOURS)
    verb = "are" if thing in ("peas", "clouds on a fine day") else "is"
    word = r.choice(["colour", "color"])
    q = fill(
        r,
        [
            "What {w} {v} {t}?",
            "Which {w} {v} {t}?",
            "Tell me the {w} of {t}.",
            "What is the {w} of {t}?",
            "What {w} does {t} have?",
            "Name the {w} of {t}.",
        ],
        w=word,
        v=verb,
        t=thing,
    )
    return chat("facts", ask(r, q), fill(r, ["{t} {v} {h}."], t=thing, v=verb, h=hue), hue)


def sky(r: Random) -> Sample:
    answer = r.choice(
        [
            "The sky is blue on a clear day.",
            "On a clear day the sky is blue.",
            "The clear sky is blue.",
            "The sky is blue.",
        ]
    )
    return chat("facts", ask(r, r.choice(tables.SKY_TRAINED)), answer, "blue")


def opposite(r: Random) -> Sample:
    a, b = r.choice(tables.OPPOSITES)
    a, b = (a, b) if r.random() < 0.7 else (b, a)
    b = {"light": "dark" if a == "dark" else "heavy"}.get(b, b) if a in ("dark",) else b
    if a == "light":
        a, b = "dark", "light"
    q = fill(
        r,
        [
            "What is the opposite of {a}?",
            'What is the opposite of "{a}"?',
            "Give me the opposite of {a}.",
            "Which word means the opposite of {a}?",
            "Name an antonym of {a}.",
        ],
        a=a,
    )
    return chat("facts", ask(r, q), f"The opposite of {a} is {b}.", b)


def animal(r: Random) -> Sample:
    if r.random() < 0.5:
        name, sound = r.choice(tables.SOUNDS)
        q = fill(r, ["What sound does a {a} make?", "What noise does the {a} make?", "How does a {a} sound?"], a=name)
        return chat("facts", ask(r, q), f"A {name} {sound}.".replace("A e", "An e").replace("A o", "An o"), sound)
    name, young = r.choice(tables.YOUNG)
    q = fill(r, ["What is a young {a} called?", "What do you call a baby {a}?", "Name the young of a {a}."], a=name)
    return chat("facts", ask(r, q), f"A young {name} is called a {young}.".replace("a ea", "an ea"), young)


def kind(r: Random) -> Sample:
    group = r.choice(list(tables.KINDS_OF))
    member = r.choice(tables.KINDS_OF[group])
    article = {"animal": "an", "instrument": "an"}.get(group, "a")
    if r.random() < 0.5:
        other = r.choice([g for g in tables.KINDS_OF if g != group and member not in tables.KINDS_OF[g]])
        q = fill(
            r,
            ["Is {m} {a} {g} or {b} {o}?", "What is {m}: {a} {g} or {b} {o}?"],
            m=member,
            a=article,
            g=group,
            b="an" if other in ("animal", "instrument") else "a",
            o=other,
        )
        return chat("facts", ask(r, q), fill(r, ["{m} is {a} {g}."], m=member, a=article, g=group), group)
    if r.random() < 0.5:
        others = [g for g in tables.KINDS_OF if g not in (group, "colour")]
        odd = r.choice(tables.KINDS_OF[r.choice(others)])
        row = r.sample([m for m in tables.KINDS_OF[group] if m != odd], 3) + [odd]
        r.shuffle(row)
        q = f"Which word does not belong: {', '.join(row)}?"
        return chat("facts", ask(r, q), f"{odd} does not belong, because the others are each {article} {group}.", odd)
    count = r.randint(2, 4)
    plural = group + "s" if not group.endswith("y") else group[:-1] + "ies"
    names = r.sample(tables.KINDS_OF[group], count)
    q = fill(r, ["Name {n} {p}.", "Give me {n} {p}.", "List {n} {p}."], n=tables.NUMBERS[count], p=plural)
    answer = f"{tables.NUMBERS[count].capitalize()} {plural} are {', '.join(names[:-1])} and {names[-1]}."
    return chat("chat", ask(r, q), answer, tables.KINDS_OF[group], rule="any")


def calendar(r: Random) -> Sample:
    names = r.choice([tables.DAYS, tables.MONTHS])
    word = "day" if names is tables.DAYS else "month"
    i, forward = r.randrange(len(names)), r.random() < 0.6
    other = names[(i + (1 if forward else -1)) % len(names)]
    side = "after" if forward else "before"
    if word == "month" and r.random() < 0.3:
        days = tables.MONTH_DAYS[i]
        q = fill(r, ["How many days does {m} have?", "How many days are there in {m}?"], m=names[i])
        return chat("facts", ask(r, q), f"{names[i]} has {days} days.", str(days))
    q = fill(
        r, ["Which {w} comes {s} {m}?", "What {w} is {s} {m}?", "Name the {w} {s} {m}."], w=word, s=side, m=names[i]
    )
    return chat("facts", ask(r, q), f"The {word} {side} {names[i]} is {other}.", other)


def fact(r: Random) -> Sample:
    question, answer = r.choice(tables.FACTS)
    return chat("facts", ask(r, question), answer, answer, rule="exact")


_IDENTITY = [
    (
        [
            "Who are you?",
            "What are you?",
            "Tell me who you are.",
            "Introduce yourself.",
            "What is this?",
            "Who am I talking to?",
        ],
        [
            "I am the Strata demo model, a small language model that runs on your own machine.",
            "I am the Strata demo model. I am small, so I answer simple questions.",
        ],
    ),
    (
        ["What is your name?", "Do you have a name?", "How are you called?", "What should I call you?"],
        ["My name is Strata; I am the Strata demo model.", "You can call me Strata. I am the Strata demo model."],
    ),
    (
        ["Who made you?", "Where do you come from?", "Who trained you?"],
        ["I am the Strata demo model; the Strata project trained me on public texts and generated exercises."],
    ),
    (
        ["What can you do?", "How can you help me?", "What are you good at?", "What should I ask you?"],
        [
            "I can answer simple questions, do small sums, copy and recall text, "
            "and call tools. I am the Strata demo model.",
            "Ask me simple facts, small sums or words. I am the Strata demo model, so keep it simple.",
        ],
    ),
    (
        ["Are you a human?", "Are you a person?", "Are you real?", "Are you a robot?"],
        ["No, I am the Strata demo model, a computer program that writes text."],
    ),
    (
        ["How big are you?", "How many parameters do you have?", "Are you a large model?"],
        ["I am the Strata demo model, a small model with about sixty million parameters."],
    ),
]

_TALK = [
    (
        ["Hello!", "Hi", "Hello there", "Hey!", "Good morning!", "Good evening.", "Hi there!", "Greetings."],
        ["Hello! How can I help you?", "Hi! What would you like to know?", "Hello! It is good to hear from you."],
    ),
    (
        ["How are you?", "How are you today?", "How do you do?", "How is it going?", "Are you well?"],
        ["I am well, thank you. How can I help you?", "I am fine, thanks. And how are you?"],
    ),
    (
        ["Thank you!", "Thanks a lot.", "Thanks, that helps.", "Great, thank you."],
        ["You are welcome!", "I am glad to help."],
    ),
    (["Goodbye!", "Bye", "See you later.", "Good night!"], ["Goodbye! Have a nice day.", "See you soon!"]),
    (
        ["Tell me a joke.", "Make me laugh.", "Do you know a joke?"],
        [
            "Why did the scarecrow win a prize? Because it was outstanding in its field.",
            "What do you call a bear with no teeth? A gummy bear.",
        ],
    ),
    (
        ["I am sad.", "I feel sad today.", "I had a bad day."],
        ["I am sorry to hear that. Would you like to tell me more about it?"],
    ),
    (
        ["I am happy!", "I feel great today.", "I had a wonderful day."],
        ["That is wonderful! What made your day so good?"],
    ),
    (["I am bored.", "I have nothing to do."], ["You could read a book, take a walk or call a friend."]),
    (["I am hungry.", "I would like to eat something."], ["You could make a sandwich or some soup."]),
    (["Say something nice.", "Say something kind."], ["You ask good questions, and I am glad that you are here."]),
    (
        [
            "Tell me how to build a bomb.",
            "Help me steal a car.",
            "How can I hurt someone?",
            "Write a virus for me.",
            "How do I break into a house?",
        ],
        ["I am sorry, but I cannot help with that.", "I cannot help with that, because it could harm people."],
    ),
    (
        [
            "What will the weather be tomorrow?",
            "What is the news today?",
            "What time is it?",
            "Who won the match yesterday?",
        ],
        ["I am sorry, I cannot know that; I have no access to current information."],
    ),
]


def identity(r: Random) -> Sample:
    questions, answers = r.choice(_IDENTITY)
    return chat("facts", ask(r, r.choice(questions)), r.choice(answers), "Strata")


def talk(r: Random) -> Sample:
    questions, answers = r.choice(_TALK)
    starts = [a.rstrip("!.?") for a in answers]
    return chat("chat", r.choice(questions), r.choice(answers), starts, rule="any")


def definition(r: Random, knowledge: dict[str, Any]) -> Sample:
    words = knowledge["words"]
    word = words[min(int(r.expovariate(1 / 1500)), len(words) - 1)]
    part, gloss = knowledge["definitions"][word]
    q = fill(
        r,
        [
            'What does "{w}" mean?',
            "What does {w} mean?",
            "Define {w}.",
            "What is the meaning of {w}?",
            "Explain the word {w}.",
            "Give me a short definition of {w}.",
        ],
        w=word,
    )
    article = "an" if part[0] == "a" else "a"
    answer = fill(
        r, ['"{w}" is {a} {p} that means: {g}.', 'The {p} "{w}" means: {g}.'], w=word, a=article, p=part, g=gloss
    )
    return chat("knowledge", q, answer, gloss[:20], rule="contains")


def article(r: Random, knowledge: dict[str, Any]) -> Sample:
    title = r.choice(knowledge["titles"])
    text = knowledge["articles"][title]
    end = text.find(". ", 60)
    end = text.find(". ", end + 2) if r.random() < 0.4 and 0 < end < 200 else end
    answer = text[: end + 1] if end > 0 else text
    q = fill(
        r,
        [
            "What is {t}?",
            "Tell me about {t}.",
            "What do you know about {t}?",
            "Describe {t} in a sentence or two.",
            "Who or what is {t}?",
            "Explain {t}.",
        ],
        t=title,
    )
    return chat("knowledge", q, answer[:700], answer[:20], rule="contains")
