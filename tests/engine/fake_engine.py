"""The real engine process with the fake model: `fake_engine.py [--slow S] --serve --native FILE ...`."""

import os
import sys
import time
from typing import Any

import engine_fakes

from strata.engine.process import main
from strata.errors import WeightsError


class ProcessModel(engine_fakes.FakeModel):
    """Takes `slow` seconds a window; hangs for ever on the token HANGS; prints, as careless libraries do."""

    slow = 0.0

    def forward(self, segments: Any) -> Any:
        os.write(1, b"a library writes to stdout\n")
        time.sleep(self.slow)
        if any(engine_fakes.HANGS in s.tokens for s in segments):
            time.sleep(600)
        return super().forward(segments)


def load(path: str, *, kv: str, context: int | None, threads: int, progress: Any) -> ProcessModel:
    if path == "missing":
        raise WeightsError("missing: there is no such file.")
    if path == "broken":
        raise ZeroDivisionError("a bug")
    progress("reading tensors", 1, 1)
    return ProcessModel(context or 256)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[:1] == ["--slow"]:
        ProcessModel.slow = float(arguments[1])
        arguments = arguments[2:]
    sys.exit(main(arguments, load=load))
