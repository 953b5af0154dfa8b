"""The rounds and the report of a comparison, with sides that answer at once."""

import json

import pytest

from benchmarks.cpu_vs_llamacpp import report
from benchmarks.cpu_vs_llamacpp.cases import Case
from benchmarks.cpu_vs_llamacpp.measure import run
from benchmarks.cpu_vs_llamacpp.traffic import Traffic
from benchmarks.rounds import Side, SideError, rotated

CASES = (
    Case("prompt 256", "prompt", 256),
    Case("decode", "decode", 64),
    Case("4 conversations", "together", 8, 4),
    Case("text, drafts 1", "drafted", 32, drafts=1),
)
TRAFFIC = Traffic(2, 8, 2, 1000, 1000, 100, 100, 10.0, 10.0)


class Texts:
    def take(self, count, which):
        return [which] * count


class FakeSide:
    """Takes a fixed time a token, and writes down what it was asked."""

    cpu = 0.0

    def __init__(self, name, seconds, log, refuses=()):
        self.name, self.seconds, self.log, self.refuses = name, seconds, log, refuses

    def ask(self, op, **arguments):
        self.log.append((self.name, op))
        if op in self.refuses:
            raise SideError(f"{op} is refused")
        if op == "drafted":
            return {"seconds": 32 * self.seconds, "tokens": 32, "drafted": 20, "accepted": 5}
        tokens = arguments.get("tokens", [])
        return self.seconds * sum(len(t) if isinstance(t, list) else 1 for t in tokens)


def measured(sides, rounds=3):
    results = run(sides, CASES, Texts(), rounds, lambda: None)
    memory = {s.name: {"anonymous": 1, "files": 2} for s in sides}
    return report.Measured("toy", results, TRAFFIC, {"1": 2, "4": 5, "prompt": 8}, [1e6], [1e6], memory)


def test_the_json_has_case_ours_peer_and_ratio():
    log = []
    found = measured([FakeSide("ours", 0.01, log), FakeSide("wheel", 0.02, log), FakeSide("native", 0.005, log)])
    cases = list(report.cases(found, ["ours", "wheel", "native"]))
    assert json.loads(json.dumps(cases)) == cases
    assert len(cases) == 2 * len(CASES) + 2  # and the best number of drafts
    for case in cases:
        assert case["ours"] == pytest.approx(100)
        assert case["peer"] == pytest.approx(50 if "wheel" in case["case"] else 200)
        assert case["ratio"] == pytest.approx(2 if "wheel" in case["case"] else 0.5)


def test_sides_alternate_within_a_case_and_change_order():
    log = []
    measured([FakeSide("a", 0.01, log), FakeSide("b", 0.01, log)], rounds=2)
    decodes = [name for name, op in log if op == "decode"][2:]  # after the warm-up
    assert decodes == ["a", "b", "b", "a"]
    assert rotated([1, 2, 3], 4) == [2, 3, 1]


def test_what_a_side_cannot_do_is_said_and_not_measured():
    log = []
    found = measured([FakeSide("ours", 0.01, log, refuses=("drafted",)), FakeSide("wheel", 0.02, log)])
    last = next(c for c in report.cases(found, ["ours", "wheel"]) if "drafts" in c["case"])
    assert last["ours"] is None
    assert last["ratio"] is None
    assert any("drafted is refused" in line for line in report.table(found, ["ours", "wheel"]))


def test_shares_of_the_limits():
    log = []
    found = measured([FakeSide("ours", 0.01, log)])
    part = found.share(CASES[2], 100.0)  # 25 steps a second of 4 rows
    assert part.step_bytes == 1100 + 2 * 5 * 10
    assert part.bandwidth == pytest.approx(25 * 1200 / 1e6)
    assert part.compute == pytest.approx(25 * (4 * (1000 + 2 * 2 * 10) + 4 * 100) / 1e6)


def test_a_side_that_dies_or_refuses_gives_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    side = Side("ours", "ours")
    try:
        with pytest.raises(SideError, match="ours, open: .*nowhere"):
            side.ask("open", model="/nowhere.gguf", threads=1, context=1, conversations=1, length=1)
    finally:
        side.stop()
    with pytest.raises(SideError, match="ended with exit code"):
        Side("gone", "no_such_module").ask("about")
