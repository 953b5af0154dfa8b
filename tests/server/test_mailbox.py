"""The queue between two tasks: order, limits of waiting, cancellation, and no timer left behind."""

import asyncio
from typing import Any

import pytest

from strata.server.mailbox import Mailbox
from strata.server.sse import Feed


def run(main: Any) -> Any:
    return asyncio.run(asyncio.wait_for(main, 10))


def test_items_come_in_order_whoever_is_first() -> None:
    async def main() -> list[int]:
        box: Mailbox[int] = Mailbox()
        box.put(0)
        found = [await box.get()]
        reader = asyncio.create_task(box.get())
        await asyncio.sleep(0)
        box.put(1)
        box.put(2)
        found += [await reader, await box.get()]
        assert box.first() is None
        with pytest.raises(IndexError):
            box.take()
        return found

    assert run(main()) == [0, 1, 2]


def test_a_wait_ends_when_its_own_limit_does() -> None:
    """Long and short waits in any order, with one timer for all of them."""

    async def main() -> None:
        box: Mailbox[int] = Mailbox()
        loop = asyncio.get_running_loop()
        for limit in (0.05, 0.2, 0.02, 0.1, 0.0):
            begun = loop.time()
            assert not await box.arrives(limit)
            assert limit - 0.005 <= loop.time() - begun < limit + 0.5
        waiting = asyncio.create_task(box.arrives(5))
        await asyncio.sleep(0.01)
        box.put(1)
        assert await waiting
        assert await box.arrives(0)
        begun = loop.time()
        assert box.take() == 1
        assert not await box.arrives(0.05)  # the timer of 5 s is still set
        assert loop.time() - begun < 1
        waiting = asyncio.create_task(box.arrives(3600))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        box.put(2)
        assert await box.get() == 2
        box.close()
        assert not [handle for handle in loop._scheduled if not handle.cancelled() and handle.when() > loop.time() + 60]  # type: ignore[attr-defined]

    run(main())


def test_a_cancelled_reader_loses_nothing() -> None:
    async def main() -> None:
        box: Mailbox[int] = Mailbox()
        reader = asyncio.create_task(box.get())
        await asyncio.sleep(0)
        box.put(1)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        assert await box.get() == 1

    run(main())


def test_a_feed_gives_its_events_then_its_error_then_its_end() -> None:
    async def events() -> Any:
        yield 1
        yield 2
        await asyncio.sleep(0.05)
        yield 3
        raise ValueError("broken")

    async def main() -> None:
        feed = Feed(events())
        await feed.settle(1)
        assert (await feed.next(1), await feed.next(1)) == (1, 2)
        assert await feed.next(0.001) is None
        assert await feed.next(1) == 3
        with pytest.raises(ValueError, match="broken"):
            await feed.next(1)
        with pytest.raises(StopAsyncIteration):
            await feed.next(1)
        await feed.close()

    run(main())


def test_a_feed_that_fails_at_once_says_so_when_it_settles() -> None:
    async def events() -> Any:
        raise ValueError("broken")
        yield 1

    async def main() -> None:
        feed = Feed(events())
        with pytest.raises(ValueError, match="broken"):
            await feed.settle(1)
        await feed.close()

    run(main())
