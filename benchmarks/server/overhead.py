"""What HTTP costs: tokens a second of some streams over HTTP and over the engine's own protocol."""

import argparse
import statistics
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

from benchmarks.lanes.client import Engine
from benchmarks.lanes.figures import case
from benchmarks.rounds import Series, rotated
from benchmarks.server.asks import Asks
from benchmarks.server.load import QUIET, Outcome, check, directly, over_http, wait_for_quiet
from benchmarks.server.served import Served

CONTEXT = 2048
HTTP, ENGINE = "http", "engine"


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rate over HTTP against the engine's; 0.97 or more is wanted."""
    asks = Asks(options.model)
    found: dict[str, list[Outcome]] = {HTTP: [], ENGINE: []}
    with (
        closing(Served(options.model, threads=options.threads, context=CONTEXT, profile=options.profile)) as server,
        closing(engine_alone(options)) as engine,
    ):
        for turn in range(options.rounds + 1):
            wait_for_quiet(options.quiet)
            asked = asks.conversations(options.streams, options.tokens)

            def http(server: Served = server, asked: list[Any] = asked) -> Outcome:
                outcome, answers = over_http(server, asked)
                check(asked, answers)
                return outcome

            sides = {HTTP: http, ENGINE: partial(directly, engine, asked)}
            for name in rotated([HTTP, ENGINE], turn):
                outcome = sides[name]()
                if turn:
                    found[name].append(outcome)
    pairs = list(zip(found[HTTP], found[ENGINE], strict=True))
    quiet = [pair for pair in pairs if max(outcome.others for outcome in pair) < QUIET]
    if quiet:
        pairs = quiet
        found = {HTTP: [http for http, _ in quiet], ENGINE: [own for _, own in quiet]}
    totals = {name: Series([outcome.total for outcome in outcomes]) for name, outcomes in found.items()}
    tokens = options.streams * options.tokens * len(pairs)
    yield case(
        f"HTTP, {options.streams} streams",
        "tokens/s",
        totals[HTTP].median,
        totals[ENGINE].median,
        baseline_is="the engine's own protocol",
        wanted=0.97,
        ratio_of_rounds=statistics.median(http.total / own.total for http, own in pairs),
        quiet_rounds=len(quiet),
        spread=[totals[name].spread for name in (HTTP, ENGINE)],
        server_us_a_token=1e6 * sum(o.server_cpu for o in found[HTTP]) / tokens,
        engine_us_a_token=[1e6 * sum(o.engine_cpu for o in found[name]) / tokens for name in (HTTP, ENGINE)],
        client_us_a_token=[1e6 * sum(o.client_cpu for o in found[name]) / tokens for name in (HTTP, ENGINE)],
        others=max(o.others for outcomes in found.values() for o in outcomes),
    )
    firsts = {name: statistics.median(f for o in outcomes for f in o.first) for name, outcomes in found.items()}
    yield case(f"HTTP, {options.streams} streams, first token", "s", firsts[HTTP], firsts[ENGINE])


def engine_alone(options: argparse.Namespace) -> Engine:
    """The engine that the server has, without it."""
    words = ["--native", str(options.model), "--threads", str(options.threads), "--max-context", str(CONTEXT)]
    return Engine("engine", words)
