"""The supervisor over a real child process: every request ends, with an answer or an error that says why."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from strata.engine.protocol import Done, Gen, Token
from strata.server.failures import EngineDied, EngineRefused, EngineStalled, EngineUnavailable
from strata.server.supervisor import Limits, State, Supervisor


def ask(text: str, limit: int = 100) -> Gen:
    return Gen(limit, tuple(f"user\n{text}\nassistant\n".encode()))


async def answer(engine: Supervisor, text: str, limit: int = 100) -> str:
    tokens = []
    async with engine.request(ask(text, limit)) as run:
        async for report in run.reports():
            if isinstance(report, Token):
                tokens.append(report.id)
    return bytes(token for token in tokens if token < 256).decode()


def test_requests_run_one_at_a_time_in_order(one_at_a_time: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](one_at_a_time) as engine:
            assert await engine.start() == 512
            assert engine.info["engine"] == "9.9.9"
            order: list[int] = []

            async def one(number: int) -> None:
                assert await answer(engine, f"say {number}") == str(number)
                order.append(number)

            await asyncio.gather(*(one(number) for number in range(40)))
            assert order == list(range(40))
        assert one_at_a_time.lines()[-1] == "quit"

    asyncio.run(main())


def test_leaving_early_sends_stop_and_frees_the_engine(fake: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](fake) as engine:
            async with engine.request(ask("slow 400")) as run, contextlib.aclosing(run.reports()) as reports:
                async for report in reports:
                    if isinstance(report, Token):
                        break
            started = time.monotonic()
            assert await answer(engine, "say next") == "next"
            assert time.monotonic() - started < 2
        assert len(fake.stops()) == len(fake.pids()) == 1

    asyncio.run(main())


def test_cancelled_while_waiting_leaves_the_queue_intact(fake: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](fake, parallel=1) as engine:
            first = asyncio.create_task(answer(engine, "slow 20"))
            await asyncio.sleep(0.2)
            waiting = [asyncio.create_task(answer(engine, f"say {n}")) for n in range(5)]
            await asyncio.sleep(0.05)
            assert engine.waiting == 5
            waiting[0].cancel()
            waiting[3].cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert [r for r in results if isinstance(r, str)] == ["1", "2", "4"]
            assert await first == "x" * 20
            assert (engine.waiting, engine.running) == (0, 0)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("die", EngineDied, r"killed by SIGKILL \(signal 9\) while writing this reply \(after 2 tokens\).*about to"),
        ("hang", EngineStalled, r"sent nothing for 2 s while writing this reply \(after 1 tokens\)"),
        ("garbage", EngineStalled, r"cannot be read: 'B?T .*pears'"),
        ("fatal", EngineDied, "no progress for 60 s"),
    ],
)
def test_failures_say_why_and_the_next_request_works(
    fake: Any, helpers: Any, text: str, error: type[Exception], said: str
) -> None:
    async def main() -> None:
        async with helpers["supervised"](fake) as engine:
            await engine.start()
            with pytest.raises(error, match=said):
                await answer(engine, text)
            assert await answer(engine, "say back") == "back"
            assert engine.restarts == 1
            assert len(fake.pids()) == 2

    asyncio.run(main())


def test_those_who_wait_survive_a_crash(fake: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](fake, parallel=1) as engine:
            dying = asyncio.create_task(answer(engine, "die"))
            await asyncio.sleep(0.01)
            others = [asyncio.create_task(answer(engine, f"say {n}")) for n in range(10)]
            with pytest.raises(EngineDied):
                await dying
            assert await asyncio.gather(*others) == [str(n) for n in range(10)]

    asyncio.run(main())


def test_killed_while_idle_comes_back(fake: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](fake) as engine:
            for n in range(3):
                await engine.start()
                assert engine.pid is not None
                os.kill(engine.pid, signal.SIGKILL)
                await asyncio.sleep(0.1)
                assert await answer(engine, f"say {n}") == str(n)

    asyncio.run(main())


def test_refused_request_keeps_the_engine(fake: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](fake) as engine:
            with pytest.raises(EngineRefused, match="KV pool full: 3 lanes") as caught:
                await answer(engine, "refuse KV pool full: 3 lanes")
            assert caught.value.code == "kv_pool_full"
            assert await answer(engine, "say on") == "on"
            assert len(fake.pids()) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("mode", "error", "said", "starts"),
    [
        ("never", EngineStalled, "not ready after 0.5 s", 3),
        ("crash", EngineDied, "exit code 3 before it was ready. Its last log lines: a shard is on fire", 3),
        ("refuse", EngineUnavailable, "tensor output.weight is missing", 1),
        ("fatal", EngineUnavailable, "tiny.gguf is truncated", 1),
    ],
)
def test_engine_that_does_not_start(
    fake: Any, helpers: Any, mode: str, error: type[Exception], said: str, starts: int
) -> None:
    fake.mode = mode
    limits = replace(helpers["QUICK"], ready_s=0.5)

    async def main() -> None:
        async with helpers["supervised"](fake, limits) as engine:
            waiting = [asyncio.create_task(answer(engine, "say x")) for _ in range(3)]
            with pytest.raises(error, match=said):
                await engine.start()
            for result in await asyncio.gather(*waiting, return_exceptions=True):
                assert isinstance(result, EngineUnavailable)
            assert engine.state is State.FAILED
            assert isinstance(engine.failure, error)
            assert len(fake.pids()) == starts
            # After the pause a request tries again, and works when the reason is gone.
            await asyncio.sleep(0.15)
            engine.command = replace(fake, mode="normal").command
            assert await answer(engine, "say again") == "again"

    asyncio.run(main())


def test_program_that_is_not_there(helpers: Any) -> None:
    async def main() -> None:
        engine = Supervisor(["/nowhere/strata"], limits=helpers["QUICK"])
        with pytest.raises(EngineUnavailable, match=r"/nowhere/strata cannot be started"):
            await engine.start()
        await engine.close()

    asyncio.run(main())


def test_closing_answers_everybody(fake: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](fake) as engine:
            tasks = [asyncio.create_task(answer(engine, "slow 400", 400)) for _ in range(4)]
            await asyncio.sleep(0.4)
            engine.begin_drain(stop_after_s=0.1)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert isinstance(results[0], str)
            if fake.lanes:
                assert all(isinstance(r, str) for r in results)
            else:
                assert all(isinstance(r, EngineUnavailable) and "shutting down" in str(r) for r in results[1:])
            with pytest.raises(EngineUnavailable):
                await answer(engine, "say late")
        assert len(fake.stops()) == (4 if fake.lanes else 1)

    asyncio.run(main())


def test_done_carries_what_the_engine_counted(fake: Any, helpers: Any) -> None:
    async def main() -> None:
        async with helpers["supervised"](fake) as engine, engine.request(ask("say abc", 2)) as run:
            reports = [report async for report in run.reports()]
        done = reports[-1]
        assert isinstance(done, Done)
        assert (done.generated, done.finish, done.reused, done.drafts_offered) == (2, "length", 4, 5)

    asyncio.run(main())


def test_log_lines_of_the_engine_keep_their_level(fake: Any, helpers: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with helpers["supervised"](fake) as engine:
            with pytest.raises(EngineDied, match=r"Its last log lines: half full \| about to fall over"):
                await answer(engine, "die loudly")

    asyncio.run(main())
    found = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert ("strata.cpu", "WARNING", "half full") in found


def test_the_engine_does_not_learn_the_keys_of_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRATA_API_KEY", "secret")
    monkeypatch.setenv("STRATA_REPACK", "off")
    told = (
        "import os; print('FATAL', *map(os.environ.get, ('STRATA_API_KEY', 'STRATA_REPACK')), flush=True); os._exit(1)"
    )

    async def main() -> None:
        engine = Supervisor([sys.executable, "-S", "-c", told], limits=Limits(start_tries=1, quit_s=1))
        try:
            with pytest.raises(EngineUnavailable, match="None off"):
                await engine.start()
        finally:
            await engine.close()

    asyncio.run(main())
