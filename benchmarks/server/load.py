"""Many requests at once on either side, and the tokens a second and first tokens that they had."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.lanes.client import Engine
from benchmarks.rounds import SideError, Watch
from benchmarks.server.asks import CHAT, Asked
from benchmarks.server.exchange import Answer, post
from benchmarks.server.served import Served, cpu_seconds

QUIET = 0.2  # cores that others may keep busy in a round that counts as quiet


@dataclass(frozen=True)
class Outcome:
    """`total` tokens a second with the reading of prompts; `first` seconds to each first token; CPU seconds spent."""

    total: float
    first: tuple[float, ...]
    engine_cpu: float
    server_cpu: float = 0.0
    client_cpu: float = 0.0
    others: float = 0.0


def wait_for_quiet(limit_s: float) -> None:
    """Until other processes leave the cores alone, at most so long."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        watch, own = Watch(), time.process_time()
        time.sleep(0.5)
        if watch.others(time.process_time() - own) < QUIET:
            return


def directly(engine: Engine, asked: Sequence[Asked]) -> Outcome:
    """All at once over the engine's own protocol."""
    watch, spent, own = Watch(), engine.cpu(), time.process_time()
    begun = time.perf_counter()
    requests = [engine.command(each.command) for each in asked]
    engine.wait(requests)
    seconds = time.perf_counter() - begun
    engine.check(requests, asked[0].command.max_new)
    spent, own = engine.cpu() - spent, time.process_time() - own
    return Outcome(
        sum(r.generated for r in requests) / seconds,
        tuple(r.times[0] - begun for r in requests),
        spent,
        client_cpu=own,
        others=watch.others(spent + own),
    )


def over_http(server: Served, asked: Sequence[Asked]) -> tuple[Outcome, list[Answer]]:
    """All at once over HTTP, a connection each; nothing is said about answers that failed."""

    async def main() -> list[Answer]:
        return await asyncio.gather(*(post(server.port, CHAT, each.fields) for each in asked))

    engine = server.engine_pid()
    if engine is None:
        raise SideError("the server has no engine")
    before = [cpu_seconds(server.pid), cpu_seconds(engine), time.process_time()]
    watch, begun = Watch(), time.perf_counter()
    answers = asyncio.run(main())
    seconds = max(answer.ended for answer in answers) - begun
    after = [cpu_seconds(server.pid), cpu_seconds(engine), time.process_time()]
    spent = [late - early for early, late in zip(before, after, strict=True)]
    others = watch.others(sum(spent))
    firsts = [answer.first_text() for answer in answers]
    outcome = Outcome(
        sum(answer.tokens() for answer in answers) / seconds,
        tuple(first - begun for first in firsts if first is not None),
        engine_cpu=spent[1],
        server_cpu=spent[0],
        client_cpu=spent[2],
        others=others,
    )
    return outcome, answers


def check(asked: Sequence[Asked], answers: Sequence[Answer]) -> None:
    """SideError for an answer without all its tokens, or to another prompt: its times would compare nothing."""
    for wanted, answer in zip(asked, answers, strict=True):
        made, read = answer.tokens(), answer.tokens("prompt")
        if made and read != len(wanted.command.ids):
            raise SideError(f"the server reads a prompt of {len(wanted.command.ids)} tokens as one of {read}")
        if not answer.whole or made != wanted.command.max_new:
            raise SideError(
                f"status {answer.status}, {made} of {wanted.command.max_new} tokens {answer.fault}: "
                f"{answer.body[-200:]!r}"
            )
