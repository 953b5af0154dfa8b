"""Thousands of malformed requests: what they are answered with, and whether memory grows by them."""

import argparse
import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from benchmarks.lanes.figures import case
from benchmarks.rounds import SideError
from benchmarks.server.asks import Asks
from benchmarks.server.exchange import post, send
from benchmarks.server.load import check, over_http
from benchmarks.server.mutations import VALID, malformed, valid
from benchmarks.server.served import Served, resident_mib
from strata.cli.model import read_card
from strata.server.app import create_app
from strata.server.generation import Generator
from strata.server.service import Service
from strata.server.supervisor import Supervisor

AT_ONCE = 8
# A request whose limit was mutated away writes until its context is full: a small one keeps such replies short.
CONTEXT = 256
WARM_SHARE = 0.3
NOT_HERE = "501"  # what the model cannot do, like embeddings, says so
ALLOWED_BYTES = 256  # of memory that a request may leave: less than any of them has


def post_paths(model: Any) -> list[str]:
    """Every route of the application that takes POST."""
    engine = Supervisor(["never-started"])
    app = create_app(Service(Generator(engine, read_card(model).tokenizer, name="demo"), engine))
    return sorted({getattr(r, "path", "") for r in app.routes if "POST" in (getattr(r, "methods", None) or ())})


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """No 500 of all answers, memory after them against memory after the first third, service afterwards."""
    paths = post_paths(options.model)
    missing = sorted(set(VALID) - set(paths))
    if missing:
        raise SideError(f"there are valid requests for {', '.join(missing)}, which the server does not have")
    asks = Asks(options.model)
    with closing(Served(options.model, threads=options.threads, context=CONTEXT)) as server:
        asyncio.run(_check_valid(server))
        requests = itertools.islice(malformed(paths, options.seed), options.malformed)
        warm = max(1, int(WARM_SHARE * options.malformed))
        found: Counter[str] = Counter()
        asyncio.run(_send_all(server.port, itertools.islice(requests, warm), options.patience, found))
        server.wait_idle()
        before = [resident_mib(pid) for pid in server.pids()]
        asyncio.run(_send_all(server.port, requests, options.patience, found))
        server.wait_idle()
        after = [resident_mib(pid) for pid in server.pids()]
        asked = asks.conversations(4, 16, characters=100)
        _, answers = over_http(server, asked)
        check(asked, answers)
        restarts = server.get("/v1/status")["engine"]["restarts"]
        tracebacks = server.log().count("Traceback")
    sent = sum(found.values())
    failed = sum(count for word, count in found.items() if word.startswith("5") and word != NOT_HERE)
    yield case(
        f"{sent} malformed requests, no fault of the server", "requests", float(sent - failed), float(sent),
        answers=dict(sorted(found.items())), paths=paths, restarts=restarts, tracebacks=tracebacks,
    )  # fmt: skip
    growth = 2**20 * (after[0] - before[0]) / max(1, sent - warm)
    yield {
        **case("malformed requests, server's memory after them", "MiB", after[0], before[0],
               baseline_is=f"after the first {warm}", bytes_a_request=growth, allowed_bytes=ALLOWED_BYTES),
    }  # fmt: skip
    yield case("malformed requests, engine's memory after them", "MiB", after[1], before[1])


async def _check_valid(server: Served) -> None:
    for path, fields in valid():
        answer = await post(server.port, path, fields)
        if answer.status != 200:
            raise SideError(f"POST {path}: a valid request was answered with {answer.status}: {answer.body[:300]!r}")


async def _send_all(port: int, requests: Iterator[bytes], patience_s: float, found: Counter[str]) -> None:
    async def work() -> None:
        for data in requests:
            answer = await send(port, data, patience_s)
            status = str(answer.status) if answer.status else answer.fault.partition(":")[0] or "closed"
            found[status] += 1

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))
