"""Whoever waits can be cancelled at any moment, also at the one in which what it waits for arrives."""

import asyncio

import pytest

from strata.engine.protocol import Gen, Token
from strata.server.flight import Flight
from strata.server.turns import Turns


def test_cancelled_in_the_moment_of_a_report() -> None:
    async def main() -> None:
        flight = Flight(Gen(5, (1,)), 0, 50.0, lambda: None)

        async def read_on() -> None:
            async for _ in flight.reports():
                pass

        reading = asyncio.create_task(read_on())
        await asyncio.sleep(0.01)
        flight.take(Token(1))
        # One round of the loop wakes the queue's reader; the cancellation comes before it has run.
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(reading), 1)
        assert reading.cancelled()

    asyncio.run(main())


def test_cancelled_in_the_moment_of_the_turn() -> None:
    async def main() -> None:
        turns = Turns(10)
        first = asyncio.create_task(turns.acquire())
        second = asyncio.create_task(turns.acquire())
        await asyncio.sleep(0)
        turns.open(1)
        first.cancel()
        await asyncio.wait_for(second, 1)
        assert first.cancelled()
        assert (turns.taken, turns.waiting) == (1, 0)

    asyncio.run(main())
