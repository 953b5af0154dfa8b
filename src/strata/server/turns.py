"""The queue in front of the engine: one at a time, first come, first served, and nobody waits for ever."""

import asyncio
from collections import deque

from strata.server.failures import EngineUnavailable


class Turns:
    """A lock that is handed over in order of arrival. Those who wait can be refused all at once, with a reason."""

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._taken = False
        self._closed: EngineUnavailable | None = None

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def taken(self) -> bool:
        """Whether a request is in progress."""
        return self._taken

    async def acquire(self) -> None:
        """Wait for the turn. Raises EngineUnavailable when too many wait or the queue was closed."""
        if self._closed is not None:
            raise self._closed
        if not self._taken:
            self._taken = True
            return
        if len(self._waiting) >= self._max_waiting:
            raise EngineUnavailable(f"{len(self._waiting)} requests are waiting already; try again later.")
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
            elif place.done() and not place.cancelled() and place.exception() is None:
                self.release()  # the turn came in the very moment of the cancellation
            raise

    def release(self) -> None:
        """Give the turn to the next that waits."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._taken = False

    def close(self, reason: EngineUnavailable) -> None:
        """Refuse those who wait, and everybody from now on."""
        self._closed = reason
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_exception(reason)
