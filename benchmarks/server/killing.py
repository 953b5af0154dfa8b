"""The engine is killed while it works, again and again: what its clients hear, and how soon it serves again."""

import argparse
import asyncio
import os
import random
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from benchmarks.lanes.figures import case
from benchmarks.rounds import SideError
from benchmarks.server.asks import CHAT, Asks
from benchmarks.server.exchange import Answer, post
from benchmarks.server.overhead import CONTEXT, engine_alone
from benchmarks.server.served import Served

CLIENTS = 8
TOKENS = 1500  # more than an engine writes before it is killed
BEGUN_S = 30.0


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Clients that were told why of all clients; seconds from a kill to a whole new answer."""
    asks, draw = Asks(options.model), random.Random(options.seed)
    began = time.perf_counter()
    with closing(engine_alone(options)):
        start_s = time.perf_counter() - began
    told, backs, untold = 0, [], []
    with closing(Served(options.model, threads=options.threads, context=CONTEXT)) as server:
        for _ in range(options.kills):
            answers, back = asyncio.run(_one_kill(server, asks, draw.uniform(0.0, 0.5)))
            backs.append(back)
            told += sum(map(says_why, answers))
            untold += [f"{a.status} {a.fault} {a.body[-200:]!r}" for a in answers if not says_why(a)]
        restarts = server.get("/v1/status")["engine"]["restarts"]
    if restarts != options.kills:
        raise SideError(f"the engine was killed {options.kills} times and started again {restarts} times")
    clients = options.kills * CLIENTS
    name = f"engine killed {options.kills} times, clients told why"
    yield case(name, "clients", float(told), float(clients), untold=untold[:3])
    yield case(
        "engine killed, until the next answer is whole", "s", statistics.median(backs), start_s,
        baseline_is="start of the engine alone", most=max(backs), least=min(backs),
    )  # fmt: skip


def says_why(answer: Answer) -> bool:
    """Whether an answer, whole or a stream, ends with an error that says that the engine was killed."""
    if not answer.whole:
        return False
    if answer.status == 200:
        errors = [event["error"] for _, event in answer.events() if "error" in event]
    else:
        errors = [(answer.json() or {}).get("error") or {}]
    return any("killed by SIGKILL" in error.get("message", "") for error in errors)


async def _one_kill(server: Served, asks: Asks, delay_s: float) -> tuple[list[Answer], float]:
    """Clients of which half stream, the kill, what they got, and the seconds until a request after it is answered."""
    asked = asks.conversations(CLIENTS + 1, TOKENS, characters=120)
    again = asked.pop().fields | {"max_tokens": 4}
    flying = [
        asyncio.create_task(post(server.port, CHAT, each.fields | {"stream": bool(number % 2)}))
        for number, each in enumerate(asked)
    ]
    deadline = time.monotonic() + BEGUN_S
    while (await asyncio.to_thread(server.get, "/v1/status"))["activity"]["in_flight"] < CLIENTS:
        if time.monotonic() > deadline:
            raise SideError(f"{CLIENTS} requests were not in flight within {BEGUN_S:.0f} s")
        await asyncio.sleep(0.01)
    await asyncio.sleep(delay_s)
    engine = server.engine_pid()
    if engine is None:
        raise SideError("the engine ended by itself")
    os.kill(engine, signal.SIGKILL)
    killed = time.perf_counter()
    answers = await asyncio.gather(*flying)
    answer = await post(server.port, CHAT, again)
    if answer.status != 200 or answer.tokens() != again["max_tokens"]:
        raise SideError(f"after a kill: {answer.status} {answer.fault} {answer.body[-200:]!r}")
    return list(answers), answer.ended - killed
