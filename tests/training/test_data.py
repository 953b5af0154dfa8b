"""Generated conversations: the template renders what training text says, answers satisfy their own judges."""

import json
from random import Random

import jinja2
import pytest

pytest.importorskip("tokenizers")

from training.chat import CHAT_TEMPLATE, generation_prompt, render
from training.data.generate import GROUPS, Sources, generate
from training.data.heldout import is_held_out
from training.data.tables import SKY_HELD_OUT, SKY_TRAINED

DEFINITIONS = {"cat": ("noun", "a small animal that purrs")}
SOURCES = Sources(
    {"definitions": DEFINITIONS, "words": ["cat"], "titles": ["Moss"], "articles": {"Moss": "Moss is a plant. " * 9}},
    ["It was a dark night.\n\nThe wind blew. " * 60],
)


@pytest.mark.parametrize("kind", sorted(GROUPS))
def test_samples_render_as_the_template_does_and_pass_their_judge(kind: str) -> None:
    environment = jinja2.Environment()
    environment.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
    template = environment.from_string(CHAT_TEMPLATE)
    r = Random(4)
    for _ in range(60):
        sample = generate(r, SOURCES, kind)
        answer = sample.text()[len(sample.prompt()) :].removesuffix("<|im_end|>\n")
        assert sample.accepts(answer)
        assert not sample.accepts("I do not know it.")
        last = {**sample.messages[-1], "reasoning_content": sample.thinking}
        tools = sample.tools
        assert template.render(messages=[*sample.messages[:-1], last], tools=tools) == sample.text()
        prompt = template.render(
            messages=sample.messages[:-1],
            tools=tools,
            add_generation_prompt=True,
            enable_thinking=bool(sample.thinking),
        )
        assert prompt == sample.prompt()
        assert sample.text().startswith(prompt)


def test_recall_answers_stand_in_the_text() -> None:
    r, kinds = Random(7), set()
    for _ in range(80):
        sample = generate(r, SOURCES, "recall")
        kinds.add((sample.kind, sample.rule))
        assert str(sample.expect) in sample.messages[0]["content"]
        assert str(sample.expect) in sample.messages[-1]["content"]
    assert kinds == {("recall", "word"), ("recall", "contains"), ("quote", "exact")}


def test_history_drops_the_thinking_of_earlier_answers() -> None:
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "hm"},
        {"role": "user", "content": "c"},
    ]
    assert (
        render(turns)
        == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n<|im_start|>user\nc<|im_end|>\n"
    )
    assert generation_prompt(False).endswith("<think>\n\n</think>\n\n")


def test_held_out_choice_is_fixed_and_the_sky_wordings_are_apart() -> None:
    assert [i for i in range(300) if is_held_out(f"text {i}", 50)] == EXPECTED
    assert not {q.lower() for q in SKY_HELD_OUT} & {q.lower() for q in SKY_TRAINED}


EXPECTED = [197, 205, 207, 290]
