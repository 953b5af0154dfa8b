"""What one task leaves for another, in order: a queue without a limit for one reader, cheaper than asyncio's."""

import asyncio
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Items in, items out. One task at a time may read; all calls are on the loop's thread."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._deadline = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def put(self, item: T) -> None:
        """Leave an item; never waits."""
        self._items.append(item)
        self._wake()

    def first(self) -> T | None:
        """The next item, which stays; None when there is none."""
        return self._items[0] if self._items else None

    def take(self) -> T:
        """The next item. Raises IndexError when there is none."""
        return self._items.popleft()

    async def get(self) -> T:
        """The next item, waited for without a limit."""
        while not self._items:
            await self._wait()
        return self._items.popleft()

    async def arrives(self, limit_s: float) -> bool:
        """Whether there is an item now, or one comes within `limit_s`."""
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + limit_s
        while not self._items and loop.time() < self._deadline:
            # One timer serves many short waits: it is set anew only when it rings, or rings too late.
            if self._timer is not None and self._timer.when() > self._deadline:
                self._timer.cancel()
                self._timer = None
            if self._timer is None:
                self._timer = loop.call_at(self._deadline, self._ring)
            await self._wait()
        return bool(self._items)

    def close(self) -> None:
        """Nobody reads any more: no timer is left behind."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _wait(self) -> None:
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def _ring(self) -> None:
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
