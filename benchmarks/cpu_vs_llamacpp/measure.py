"""The rounds of one model: every case on every side, one side at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchmarks.cpu_vs_llamacpp.cases import Case, Texts
from benchmarks.rounds import Series, SideError, Watch, rotated

SETTLE = 64  # tokens of each conversation before its first measured step
LANES = 8
LANE_LENGTH = 1024
DRAFT_PROMPT = 200


class Asked(Protocol):
    """What is measured; `rounds.Side` is one."""

    name: str
    cpu: float

    def ask(self, op: str, **arguments: Any) -> Any:
        """The value of an operation of `benchmarks.sides`."""


@dataclass
class Results:
    """Tokens a second `series[case][side]`; why (side, case) was refused; its drafted and accepted tokens."""

    series: dict[Case, dict[str, Series]] = field(default_factory=dict)
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    drafts: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)


def run(
    sides: Sequence[Asked], cases: Sequence[Case], texts: Texts, rounds: int, between: Callable[[], None]
) -> Results:
    """Measure `rounds` rounds on sides that have the model open; `between` is called once a round, all sides idle."""
    results = Results({case: {} for case in cases})
    for side in sides:
        _warm(side, texts)
    for turn in range(rounds):
        between()
        for case in cases:
            for side in rotated(list(sides), turn):
                if (side.name, case.name) not in results.refused:
                    _measure(side, case, texts, turn, results)
    return results


def _warm(side: Asked, texts: Texts) -> None:
    """Touch the weights once, and begin the conversations."""
    side.ask("prompt", tokens=texts.take(256, 999))
    side.ask("decode", tokens=texts.take(4, 998))
    side.ask("join", prompts=[texts.take(SETTLE, i) for i in range(LANES)])
    for lanes in (2, 4, 8):
        side.ask("together", tokens=[texts.take(lanes, 997)])


def _measure(side: Asked, case: Case, texts: Texts, turn: int, results: Results) -> None:
    watch = Watch()
    try:
        speed = _speed(side, case, texts, turn, results)
    except SideError as error:
        results.refused[side.name, case.name] = str(error)
        return
    series = results.series[case].setdefault(side.name, Series())
    series.values.append(speed)
    series.others.append(watch.others(side.cpu))


def _speed(side: Asked, case: Case, texts: Texts, turn: int, results: Results) -> float:
    """Tokens a second. `decode` goes on after the prompt that the case before it left."""
    if case.kind == "drafted":
        prompt = texts.take(DRAFT_PROMPT, 0)
        done = side.ask("drafted", prompt=prompt, count=case.tokens, drafts=case.drafts)
        results.drafts[side.name, case.name] = (done["drafted"], done["accepted"])
        return done["tokens"] / done["seconds"]
    if case.kind == "together":
        lanes = [texts.take(case.tokens, 100 * (turn + 1) + 10 * case.lanes + i) for i in range(case.lanes)]
        return case.tokens * case.lanes / side.ask("together", tokens=[list(step) for step in zip(*lanes, strict=True)])
    return case.tokens / side.ask(case.kind, tokens=texts.take(case.tokens, 500 + turn))
