"""Many clients at the same moment: who is answered, who is cut off, and how long each waits for a first token."""

import argparse
import statistics
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from benchmarks.lanes.figures import case
from benchmarks.server.asks import Asks
from benchmarks.server.load import directly, over_http
from benchmarks.server.overhead import CONTEXT, engine_alone
from benchmarks.server.served import Served

TOKENS = 32


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """How many of all clients got their whole answer, and the waits against the engine's own."""
    asks = Asks(options.model)
    tokens = min(TOKENS, options.tokens)
    with (
        closing(Served(options.model, threads=options.threads, context=CONTEXT)) as server,
        closing(engine_alone(options)) as engine,
    ):
        for count in (8, options.clients):  # the few of the first round warm up
            asked = asks.conversations(count, tokens, characters=120)
            own = directly(engine, asked)
            outcome, answers = over_http(server, asked)
    answered = sum(answer.whole and answer.tokens() == tokens for answer in answers)
    faults = sorted({answer.fault for answer in answers if answer.fault})
    statuses = sorted({answer.status for answer in answers})
    name = f"{options.clients} clients at once"
    yield case(
        f"{name}, answered", "clients", float(answered), float(options.clients), statuses=statuses, faults=faults
    )
    yield case(
        f"{name}, total", "tokens/s", outcome.total, own.total, baseline_is="the engine's own protocol",
        others=[outcome.others, own.others],
    )  # fmt: skip
    if outcome.first:
        yield case(
            f"{name}, median first token", "s", statistics.median(outcome.first), statistics.median(own.first),
            spread_of_first=_spread(outcome.first), baseline_spread=_spread(own.first),
        )  # fmt: skip


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        "least": ordered[0],
        "median": statistics.median(ordered),
        "90 %": ordered[int(0.9 * (len(ordered) - 1))],
        "most": ordered[-1],
    }
