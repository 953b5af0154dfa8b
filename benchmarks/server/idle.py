"""What a server that nobody asks costs."""

import argparse
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from benchmarks.lanes.figures import case
from benchmarks.server.asks import Asks
from benchmarks.server.load import check, over_http
from benchmarks.server.overhead import CONTEXT
from benchmarks.server.served import Served, cpu_seconds

WANTED_PERCENT = 1.0


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Percent of a core that both processes use after some work; below 1 % is wanted."""
    asks = Asks(options.model)
    with closing(Served(options.model, threads=options.threads, context=CONTEXT)) as server:
        asked = asks.conversations(4, 16)
        _, answers = over_http(server, asked)
        check(asked, answers)
        server.wait_idle()
        time.sleep(1)
        pids = server.pids()
        before, begun = [cpu_seconds(pid) for pid in pids], time.monotonic()
        time.sleep(options.idle)
        spent = [cpu_seconds(pid) - early for pid, early in zip(pids, before, strict=True)]
        percents = [100 * each / (time.monotonic() - begun) for each in spent]
    total = sum(percents)
    # The clock of a process ticks in hundredths of a second: none may have passed.
    smallest = 100 / 100 / options.idle
    yield {
        **case("idle, server and engine", "percent", total, WANTED_PERCENT, server=percents[0], engine=percents[1]),
        "ratio": float(f"{WANTED_PERCENT / max(total, smallest):.4g}"),
        "baseline_is": "what is allowed",
    }
