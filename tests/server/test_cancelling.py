"""Whoever waits for the engine can be cancelled at any moment, also at the one in which what it waits for arrives."""

import asyncio

import pytest

from strata.engine.protocol import Token
from strata.server.process import EngineProcess


class Silent:
    """As much of a child process as waiting for a report needs."""

    returncode = None
    stdout = stderr = stdin = None


@pytest.mark.parametrize("limit_s", [0.0, 5.0])
def test_cancelled_in_the_moment_of_a_report(limit_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(self: EngineProcess) -> None:
        pass

    monkeypatch.setattr(EngineProcess, "_pump_reports", nothing)
    monkeypatch.setattr(EngineProcess, "_pump_log", nothing)

    async def main() -> None:
        process = EngineProcess(Silent())  # type: ignore[arg-type]

        async def read_on() -> None:
            for _ in range(3):
                await process.next_report(limit_s, "testing")

        reading = asyncio.create_task(read_on())
        await asyncio.sleep(0.01)
        process._reports.put_nowait(Token(1))
        # One round of the loop wakes the queue's reader; the cancellation comes before it has run.
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(reading), 1)
        assert reading.cancelled()

    asyncio.run(main())
