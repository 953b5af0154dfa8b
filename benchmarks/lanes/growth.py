"""The case about memory: short conversations in a row on an engine of their own."""

from collections.abc import Iterator
from typing import Any

from benchmarks.lanes.figures import case
from benchmarks.lanes.sides import IN_A_ROW, Sides

LOOKS = 4
ANSWER = 8


class InARow:
    """Resident memory after the first conversations of a row, and after all of them."""

    name = "in a row"

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._found: dict[int, dict[str, float]] = {}

    def measure(self, turn: int) -> None:
        """Once in a run."""
        if self._found:
            return
        sides, sizes = self._sides, self._sides.sizes
        engine = sides.engine(IN_A_ROW)
        looks = {sizes.mark, *(sizes.row * i // LOOKS for i in range(1, LOOKS + 1))}
        for done in range(1, sizes.row + 1):
            engine.answer(sides.prompts.passage(16 + done % 17), ANSWER)
            if done in looks:
                self._found[done] = engine.memory()
        sides.close(IN_A_ROW)

    def cases(self, model: str) -> Iterator[dict[str, Any]]:
        """MiB resident; 1 is no growth."""
        sizes = self._sides.sizes
        last, mark = self._found[sizes.row], self._found[sizes.mark]
        yield case(
            f"{model}, memory after {sizes.row} conversations in a row",
            "MiB",
            last["all"],
            mark["all"],
            baseline_is=f"after {sizes.mark}",
            anonymous=[last["anonymous"], mark["anonymous"]],
            after={str(done): memory["all"] for done, memory in sorted(self._found.items())},
            kib_a_conversation=(last["all"] - mark["all"]) * 1024 / (sizes.row - sizes.mark),
        )
