"""The figures of the rounds, and the cases that they give."""

import statistics
import time
from collections.abc import Callable
from typing import Any, TypeVar

from benchmarks.lanes.client import Engine
from benchmarks.lanes.outcome import Outcome
from benchmarks.rounds import Series, Watch

T = TypeVar("T")


class Figures:
    """Series by side and metric. The first round is kept apart: the scheduler has not learnt its prices then."""

    def __init__(self) -> None:
        self.cold: dict[tuple[str, str], float] = {}
        self._series: dict[tuple[str, str], Series] = {}
        self._others: list[float] = []

    def add(self, turn: int, side: str, others: float, **values: float | None) -> None:
        """Keep the values of a round (None: not there to be measured), and how many cores others kept busy."""
        for metric, value in values.items():
            if value is None:
                continue
            if turn == 0:
                self.cold[side, metric] = value
            else:
                self._series.setdefault((side, metric), Series()).values.append(value)
        if turn:
            self._others.append(others)

    def add_outcome(self, turn: int, side: str, outcome: Outcome, others: float) -> None:
        """Keep an outcome."""
        values = {"total": outcome.total, "decoding": outcome.decoding}
        firsts = {"first": statistics.median(outcome.first), "last": max(outcome.first)}
        self.add(turn, side, others, **values, **firsts)

    def has(self, side: str) -> bool:
        """Whether the side was measured."""
        return any(found == side for found, _ in self._series)

    def median(self, side: str, metric: str) -> float:
        """Median of the rounds."""
        return self._series[side, metric].median

    def medians(self, metric: str) -> dict[str, float]:
        """Median of the rounds, by side."""
        return {side: series.median for (side, of), series in self._series.items() if of == metric}

    def spread(self, side: str, metric: str) -> float:
        """(largest - smallest) / median."""
        return self._series[side, metric].spread

    @property
    def busiest(self) -> float:
        """The most cores that others kept busy in a round."""
        return max(self._others)


def watched(engine: Engine, action: Callable[[], T]) -> tuple[T, float]:
    """What an action on an engine returns, and the cores that others kept busy meanwhile."""
    watch, own = Watch(), engine.cpu() + time.process_time()
    result = action()
    return result, watch.others(engine.cpu() + time.process_time() - own)


def case(name: str, unit: str, value: float, baseline: float, **more: Any) -> dict[str, Any]:
    """One object of the report. A ratio above 1 is good: where less is better (`s`, `MiB`) it is baseline / value."""
    smaller_is_better = unit in ("s", "MiB")
    ratio = baseline / value if smaller_is_better else value / baseline
    found = {"case": name, "value": value, "baseline": baseline, "ratio": ratio, "unit": unit, **more}
    return {key: rounded(x) for key, x in found.items()}


def rounded(value: Any) -> Any:
    """Floats with four digits, also inside lists and dictionaries."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(x) for key, x in value.items()}
    return [rounded(x) for x in value] if isinstance(value, list | tuple) else value
