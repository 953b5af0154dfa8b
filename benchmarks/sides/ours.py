"""This project as a side, through the public interface of `strata.model`."""

from typing import Any

import numpy as np

import strata
from benchmarks.sides.protocol import memory, serve, timed
from strata.cpu import _native
from strata.model import LaneState, Model, Segment, load

CHUNK = 512  # rows of a prompt in one window, as the other side's physical batch


class Side:
    """The operations of a side."""

    def __init__(self) -> None:
        self.model: Model | None = None
        self.alone: LaneState | None = None
        self.group: list[LaneState] = []

    def about(self) -> dict[str, Any]:
        """Version, and the instruction sets that the C++ ops say they use."""
        return {"version": strata.__version__, "sets": [_native.selected_isa()]}

    def open(self, model: str, threads: int, context: int, conversations: int, length: int) -> dict[str, Any]:
        """Load a model; conversations take the memory they need."""
        self.model = load(model, threads=threads)
        self.group = [self.model.new_state() for _ in range(conversations)]
        return memory()

    def prompt(self, tokens: list[int]) -> float:
        """Seconds to read a prompt with the first token after it."""
        self.alone = self.model.new_state()
        return timed(lambda: self._read(self.alone, tokens))

    def decode(self, tokens: list[int]) -> float:
        """Seconds to decode after the prompt; the tokens are given, the most likely ones are computed and dropped."""
        return timed(lambda: [self._step([self.alone], [t]) for t in tokens])

    def join(self, prompts: list[list[int]]) -> None:
        """Begin one conversation a prompt."""
        self.group = [self.model.new_state() for _ in prompts]
        for state, prompt in zip(self.group, prompts, strict=True):
            self._read(state, prompt)

    def together(self, tokens: list[list[int]]) -> float:
        """Seconds to decode `tokens[step]`, one token for each of the first conversations."""
        return timed(lambda: [self._step(self.group[: len(step)], step) for step in tokens])

    def drafted(self, prompt: list[int], count: int, drafts: int) -> dict[str, Any]:
        """Greedy text of `count` tokens with `drafts` drafts a step (0: none): seconds, and what was accepted."""
        state = self.model.new_state(drafts=True) if drafts else self.model.new_state()
        text, kept = [self._read(state, prompt)], []

        def step() -> None:
            guesses = self.model.draft([state], text[-1:], drafts)[0].tolist()
            best = self.model.forward([Segment(state, [text[-1], *guesses], 0, drafts)]).argmax(axis=1).tolist()
            right = next((i for i, guess in enumerate(guesses) if guess != best[i]), drafts)
            state.accept(right)
            text.extend(best[: right + 1])
            kept.append(right)

        def run() -> None:
            while len(text) < count:
                if drafts:
                    step()
                else:
                    text.append(int(self._step([state], text[-1:])[0]))

        seconds = timed(run)
        return {
            "seconds": seconds,
            "tokens": len(text) - 1,
            "drafted": drafts * len(kept),
            "accepted": sum(kept),
            "kept": kept,
            "text": text[:count],
        }

    def close(self) -> None:
        """Drop the model."""
        self.model, self.alone, self.group = None, None, []

    def _read(self, state: LaneState, tokens: list[int]) -> int:
        for start in range(0, len(tokens), CHUNK):
            part = tokens[start : start + CHUNK]
            last = len(part) - 1 if start + CHUNK >= len(tokens) else len(part)
            logits = self.model.forward([Segment(state, part, last)])
        return int(logits[-1].argmax())

    def _step(self, states: list[LaneState], tokens: list[int]) -> np.ndarray:
        segments = [Segment(state, [token], 0) for state, token in zip(states, tokens, strict=True)]
        return self.model.forward(segments).argmax(axis=1)


if __name__ == "__main__":
    side = Side()
    names = ("about", "open", "prompt", "decode", "join", "together", "drafted", "close")
    serve({name: getattr(side, name) for name in names} | {"memory": memory})
