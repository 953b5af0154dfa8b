"""The benchmark of many conversations: its client against a scripted engine, its sums, and a quick run of it all."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.lanes.client import Engine, Request
from benchmarks.lanes.figures import Figures, case
from benchmarks.lanes.outcome import decoding_in_turn, decoding_together, of, one_by_one, together
from benchmarks.rounds import ROOT, SideError

SCRIPT = Path(__file__).with_name("lanes_engine.py")


@pytest.fixture(autouse=True)
def own_logs(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))


@pytest.fixture
def engine():
    started = []

    def start(mode):
        started.append(Engine(mode, [], [sys.executable, str(SCRIPT), mode]))
        return started[-1]

    yield start
    for each in started:
        each.close()


def request(sent, times, accepted=0):
    return Request(0, 4, sent, list(times), [7] * len(times), ended=times[-1], generated=len(times), accepted=accepted)


def test_the_client_keeps_conversations_apart(engine):
    works = engine("works")
    requests = [works.send([1, 100 * i], 5) for i in range(1, 4)]
    works.wait(requests)
    assert [r.tokens for r in requests] == [[100 * i + j for j in range(1, 6)] for i in range(1, 4)]
    assert all(r.sent < r.times[0] <= r.times[-1] <= r.ended for r in requests)
    assert {(r.prompt, r.reused, r.reached, r.finish, r.accepted, r.offered) for r in requests} == {
        (2, 1, 2, "length", 2, 5)
    }
    assert works.cpu() >= 0
    assert works.memory()["all"] > works.memory()["anonymous"] > 1


@pytest.mark.parametrize(("mode", "reason"), [
    ("seeds", "lacks lanes=1"),
    ("refuses", "BERR 0 the prompt is not to my taste"),
    ("short", "got 3 of 4 tokens"),
    ("dies", "ended with exit code 3"),
])  # fmt: skip
def test_what_goes_wrong_is_one_sentence_with_the_log(engine, mode, reason):
    with pytest.raises(SideError, match=rf"^{mode}: .*{reason}.*its log: "):
        engine(mode).answer([1, 2], 4)


def test_rates_of_conversations_at_once():
    # The second begins at 3 and the first ends at 4: in that second they made 2 and 1 tokens.
    requests = [request(0.0, [1.0, 2.0, 3.5, 4.0]), request(0.0, [3.0, 3.75, 5.0], accepted=1)]
    assert decoding_together(requests) == pytest.approx(3.0)
    outcome = of(requests, -1.0, 3.0)
    assert outcome.total == pytest.approx(7 / 6)
    assert outcome.first == (2.0, 4.0)
    assert outcome.windows == 7 - 2 - 1


def test_rates_of_conversations_in_turn():
    requests = [request(0.0, [1.0, 2.0, 3.0]), request(3.0, [4.0, 4.5, 5.0])]
    assert decoding_in_turn(requests) == pytest.approx(4 / 3)
    assert decoding_together([request(0.0, [1.0]), request(0.0, [2.0])]) is None


def test_first_tokens_of_those_that_wait_count_from_the_start(engine):
    works = engine("works")
    for serve in (together, one_by_one):
        outcome = serve(works, [[1], [2], [3]], 4)
        assert outcome.generated == 12
        assert len(outcome.first) == 3
        assert sorted(outcome.first) == list(outcome.first)


def test_a_ratio_above_one_is_always_good():
    assert case("a", "tokens/s", 20.0, 10.0)["ratio"] == 2
    assert case("a", "s", 0.1, 1.0)["ratio"] == 10
    assert case("a", "MiB", 110.0, 100.0)["ratio"] == pytest.approx(0.9091)


def test_the_first_round_is_kept_apart():
    figures = Figures()
    for turn, value in enumerate((1.0, 10.0, 30.0, 20.0)):
        figures.add(turn, "lanes", 0.1 * turn, total=value, decoding=None)
    assert figures.cold["lanes", "total"] == 1
    assert figures.median("lanes", "total") == 20
    assert figures.medians("decoding") == {}
    assert figures.busiest == pytest.approx(0.3)


def test_a_quick_run_measures_everything():
    command = [sys.executable, "-m", "benchmarks.lanes", "--quick", "--models", "demo", "--peer", sys.executable]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    names = [c["case"] for c in found["cases"]]
    assert len(set(names)) == len(names)
    for wanted in ("4 conversations, total", "first token", "alone against", "behind", "follow-up", "depth 1", "row"):
        assert any(wanted in name for name in names), wanted
    for c in found["cases"]:
        assert all(math.isfinite(c[key]) and c[key] >= 0 for key in ("value", "baseline", "ratio")), c
    total = next(c for c in found["cases"] if c["case"] == "demo, 4 conversations, total")
    assert total["llamacpp"] > 0
    assert set(total["totals"]) == {"lanes", "one lane", "no drafts", "llama.cpp"}
    behind = next(c for c in found["cases"] if "behind" in c["case"])
    assert behind["value"] > 0
    followed = next(c for c in found["cases"] if "follow-up" in c["case"])
    assert followed["reused"] > 500
    assert next(c for c in found["cases"] if "row" in c["case"])["ratio"] > 0.5
