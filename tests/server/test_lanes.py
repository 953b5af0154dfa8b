"""Many requests on one engine that offers lanes: each is answered as if it were alone, whatever befalls the others."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from strata.engine.protocol import Done, Gen, Progress, Resume, Token
from strata.server.failures import EngineDied, EngineRefused, EngineStalled
from strata.server.flight import Flight
from strata.server.supervisor import Supervisor


def ask(text: str, limit: int = 400) -> Gen:
    return Gen(limit, tuple(f"user\n{text}\nassistant\n".encode()))


async def answer(engine: Supervisor, text: str) -> str:
    async with engine.request(ask(text)) as flight:
        tokens = [report.id async for report in flight.reports() if isinstance(report, Token)]
    return bytes(token for token in tokens if token < 256).decode()


async def until(condition: Callable[[], bool], limit_s: float = 5) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():
            await asyncio.sleep(0.01)


def lanes_used(fake: Any) -> list[int]:
    return [int(line.split()[1]) for line in fake.lines() if line.startswith("BGEN ")]


def test_all_at_once(with_lanes: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](with_lanes) as engine:
            texts = [f"say {n} is {'x' * n}" for n in range(30)] + ["slow 50"] * 30
            await engine.start()
            started = time.monotonic()
            results = await asyncio.gather(*(answer(engine, text) for text in texts))
            took = time.monotonic() - started
            assert results == [text.removeprefix("say ") for text in texts[:30]] + ["x" * 50] * 30
            # Each slow one takes 50 x 0.02 s by itself.
            assert took < 8
            assert (engine.running, engine.waiting, engine.restarts) == (0, 0, 0)
            await answer(engine, "say more")
        lines = with_lanes.lines()
        assert lines[1] == "LANES"
        assert lines.count("LANES") == 1
        assert lanes_used(with_lanes) == list(range(61))
        assert lines[-1] == "quit"

    asyncio.run(main())


def test_reports_are_those_of_a_request_alone(fake: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](fake) as engine, engine.request(ask("say ab", 2)) as flight:
            reports = [report async for report in flight.reports()]
        own = [r for r in reports if isinstance(r, Resume | Progress | Token | Done)]
        prompt = len(ask("say ab").ids)
        assert own == [
            Resume(4), Progress(prompt, prompt, 12.5, 800.0), Token(97), Token(98),
            Done(2, prompt, 12.5, 40.0, "length", 3, 5, 4, prompt_read=prompt - 4),
        ]  # fmt: skip

    asyncio.run(main())


def test_one_leaves_and_the_others_go_on(with_lanes: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](with_lanes) as engine:
            others = [asyncio.create_task(answer(engine, "slow 60")) for _ in range(3)]
            await until(lambda: len(lanes_used(with_lanes)) == 3)
            async with engine.request(ask("slow 400")) as flight, contextlib.aclosing(flight.reports()) as reports:
                async for report in reports:
                    if isinstance(report, Token):
                        break
            assert engine.running == 4
            await until(lambda: engine.running == 3, 1)
            assert with_lanes.stops() == ["BSTOP 3"]
            assert await asyncio.gather(*others) == ["x" * 60] * 3
            assert lanes_used(with_lanes) == [0, 1, 2, 3]

    asyncio.run(main())


def test_stopped_request_ends_with_its_report(with_lanes: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](with_lanes) as engine, engine.request(ask("slow 400")) as flight:
            tokens, finish = 0, ""
            async for report in flight.reports():
                tokens += isinstance(report, Token)
                if tokens == 3:
                    flight.stop()
                if isinstance(report, Done):
                    finish = report.finish
            assert finish == "cancel"
        assert with_lanes.stops() == ["BSTOP 0"]

    asyncio.run(main())


def test_death_ends_all_in_flight_and_none_that_wait(with_lanes: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](with_lanes, parallel=8) as engine:
            flying = [asyncio.create_task(answer(engine, "slow 300")) for _ in range(7)]
            await until(lambda: engine.running == 7)
            flying.append(asyncio.create_task(answer(engine, "die")))
            await until(lambda: engine.running == 8)
            waiting = [asyncio.create_task(answer(engine, f"say {n}")) for n in range(5)]
            for error in await asyncio.gather(*flying, return_exceptions=True):
                assert isinstance(error, EngineDied)
                assert re.search(r"killed by SIGKILL \(signal 9\) while (writing|reading)", str(error))
            assert await asyncio.gather(*waiting) == [str(n) for n in range(5)]
            assert (engine.restarts, engine.running, engine.waiting) == (1, 0, 0)

    asyncio.run(main())


def test_silence_of_one_is_no_silence(with_lanes: Any, helpers: Any) -> None:
    limits = replace(helpers["QUICK"], silence_s=0.5)

    async def main() -> None:
        async with helpers["supervised"](with_lanes, limits) as engine:
            await engine.start()
            hanging = asyncio.create_task(answer(engine, "hang"))
            for _ in range(2):
                assert await answer(engine, "slow 40") == "x" * 40
                assert not hanging.done()
            started = time.monotonic()
            with pytest.raises(EngineStalled, match=r"nothing for 0\.5 s while writing this reply \(after 1 tokens\)"):
                await hanging
            assert 0.4 < time.monotonic() - started < 2
            assert await answer(engine, "say back") == "back"

    asyncio.run(main())


def test_silence_while_a_prompt_may_take_long(with_lanes: Any, helpers: Any) -> None:
    """The allowance ends when the request that has it goes on."""
    limits = replace(helpers["QUICK"], silence_s=0.3, slowest_prompt=1.0)

    async def main() -> None:
        async with helpers["supervised"](with_lanes, limits) as engine:
            await engine.start()
            started = time.monotonic()
            with pytest.raises(EngineStalled):
                await answer(engine, "hang")
            assert 0.3 < time.monotonic() - started < 3

    asyncio.run(main())


def test_allowance_for_reading() -> None:
    """Of the first chunk 1/50 s a token (of 8192 at most), then thrice the last chunk's time, none while writing."""

    async def main() -> None:
        def flight(prompt: int) -> Flight:
            return Flight(Gen(9, (1,) * prompt), 0, 50.0, lambda: None)

        assert flight(100).patience_s == 2.0
        assert flight(100_000).patience_s == 8192 / 50
        long = flight(4000)
        long.take(Resume(0))
        assert long.patience_s == 80
        long.take(Progress(1000, 4000, 2000.0, 500.0))
        assert long.patience_s == 6
        long.take(Progress(2000, 4000, 5000.0, 333.3))
        assert long.patience_s == 9
        long.take(Token(5))
        assert long.patience_s == 0

    asyncio.run(main())


def test_server_that_slept_does_not_take_the_engine_for_silent(with_lanes: Any, helpers: Any) -> None:
    """Between two messages of a chat nobody reads the lines: those of an interrupted reply are still to come."""
    limits = replace(helpers["QUICK"], silence_s=0.3)
    with asyncio.Runner() as runner:

        async def begin() -> Supervisor:
            engine = Supervisor(with_lanes.command, limits=limits)
            async with engine.request(ask("slow 10")) as flight, contextlib.aclosing(flight.reports()) as reports:
                async for report in reports:
                    if isinstance(report, Token):
                        break
            return engine

        async def go_on(engine: Supervisor) -> None:
            try:
                assert await answer(engine, "say on") == "on"
                assert engine.restarts == 0
            finally:
                await engine.close()

        engine = runner.run(begin())
        time.sleep(1)
        runner.run(go_on(engine))


def test_refusal_that_names_nobody_ends_all(with_lanes: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](with_lanes) as engine:
            tasks = [asyncio.create_task(answer(engine, text)) for text in ("slow 200", "nameless")]
            for error in await asyncio.gather(*tasks, return_exceptions=True):
                assert isinstance(error, EngineStalled)
                assert "without saying whose: expected: GEN" in str(error)
            assert await answer(engine, "say back") == "back"

    asyncio.run(main())


def test_refusal_ends_one(with_lanes: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](with_lanes) as engine:
            other = asyncio.create_task(answer(engine, "slow 30"))
            with pytest.raises(EngineRefused) as caught:
                await answer(engine, "refuse KV pool full: 2 lanes hold all 512 cells")
            assert (caught.value.code, caught.value.retry_after_s) == ("kv_pool_full", 10)
            assert await other == "x" * 30

    asyncio.run(main())


@pytest.mark.parametrize("parallel", [1, 3])
def test_parallel_bounds_what_the_engine_has(with_lanes: Any, helpers: Any, parallel: int) -> None:
    async def main() -> None:
        async with helpers["supervised"](with_lanes, parallel=parallel) as engine:
            await engine.start()
            order: list[int] = []
            most = 0

            async def one(number: int) -> None:
                nonlocal most
                async with engine.request(ask("slow 5")) as flight:
                    order.append(number)
                    most = max(most, engine.running)
                    async for _ in flight.reports():
                        pass

            await asyncio.gather(*(one(number) for number in range(12)))
            assert order == list(range(12))
            assert most == engine.serving == parallel

    asyncio.run(main())


def test_closing_stops_all(with_lanes: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](with_lanes) as engine:
            tasks = [asyncio.create_task(answer(engine, "slow 300")) for _ in range(4)]
            await until(lambda: len(lanes_used(with_lanes)) == 4)
            await engine.close()
            assert await asyncio.wait(tasks, timeout=1) == (set(tasks), set())
            assert sorted(with_lanes.stops()) == [f"BSTOP {lane}" for lane in range(4)]
            assert with_lanes.lines()[-1] == "quit"

    asyncio.run(main())
