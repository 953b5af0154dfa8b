"""The demo model's answers to tasks kept out of its training (evaluation mix, version 1), by our own arithmetic."""

import json
import lzma
from collections import defaultdict
from pathlib import Path

import pytest

from strata import model
from strata.arithmetic.sampling import argmax
from strata.cli.defaults import demo_model
from strata.text import Tokenizer
from strata.weights import open_checkpoint
from training.data.sample import Sample

MIX = Path(__file__).with_name("evaluation_mix_1.jsonl.xz")
LONG = {"recall", "recall-3500"}
FLOOR = 0.5


@pytest.fixture(scope="module")
def tasks():
    found = defaultdict(list)
    for line in lzma.decompress(MIX.read_bytes()).decode().splitlines():
        task = json.loads(line)
        found[task["kind"]].append(task)
    return found


@pytest.fixture(scope="module")
def answer():
    path = demo_model()
    demo, tokenizer = model.load(path), Tokenizer.from_metadata(open_checkpoint(path).metadata)

    def run(prompt: str) -> str:
        ids = tokenizer.encode(prompt, parse_special=True)
        state, made, new = demo.new_state(), [], ids
        for _ in range(64):
            for start in range(0, len(new), 512):
                part = new[start : start + 512]
                logits = demo.forward([model.Segment(state, part, len(part) - 1)])
            new = [argmax(logits[-1])]
            if new[0] in demo.eos_ids:
                break
            made += new
        return tokenizer.decode(made)

    return run


def share(tasks: list[dict], answer) -> float:
    right = [Sample(t["kind"], [], t["expect"], t["rule"]).accepts(answer(t["prompt"])) for t in tasks]
    return sum(right) / len(right)


def test_colour_of_the_sky_in_wordings_it_never_read(tasks, answer):
    assert share(tasks["sky"], answer) > FLOOR


def test_a_few_tasks_of_each_short_kind(tasks, answer):
    few = [task for kind in sorted(set(tasks) - LONG) for task in tasks[kind][:3]]
    assert share(few, answer) > FLOOR


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    "kind", ["arithmetic", "copying", "facts", "format", "reading", "tools", "turns", *sorted(LONG)]
)
def test_every_task_of_a_kind(tasks, answer, kind):
    assert share(tasks[kind], answer) >= FLOOR
