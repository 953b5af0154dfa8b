"""The places at the engine: first come, first served, and nobody waits for ever."""

import asyncio
from collections import deque

from strata.server.failures import EngineUnavailable, TooManyWaiting


class Turns:
    """Places, handed out in order of arrival. There are none until `open` says how many.

    Those who wait can be refused all at once, with a reason.
    """

    def __init__(self, max_waiting: int) -> None:
        self._max_waiting = max_waiting
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._places = 0
        self._taken = 0
        self._closed: EngineUnavailable | None = None

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._waiting)

    @property
    def taken(self) -> int:
        """Requests that have a place."""
        return self._taken

    async def acquire(self, *, ahead: bool = False) -> None:
        """Wait for a place, with `ahead` before all others, whose number then does not matter.

        Raises TooManyWaiting, or EngineUnavailable with the reason of a refusal.
        """
        if self._closed is not None:
            raise self._closed
        if self._taken < self._places:
            self._taken += 1
            return
        if len(self._waiting) >= self._max_waiting and not ahead:
            raise TooManyWaiting(len(self._waiting))
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if ahead:
            self._waiting.appendleft(place)
        else:
            self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
            elif place.done() and not place.cancelled() and place.exception() is None:
                self.release()  # the place came in the very moment of the cancellation
            raise

    def release(self) -> None:
        """Give a place back, to the next that waits."""
        self._taken -= 1
        self._hand_out()

    def open(self, places: int) -> None:
        """So many places from now on."""
        self._places = places
        self._hand_out()

    def shut(self) -> None:
        """Hand out no places until `open`; those who wait go on waiting."""
        self._places = 0

    def refuse(self, reason: EngineUnavailable) -> None:
        """Refuse those who wait."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_exception(reason)

    def close(self, reason: EngineUnavailable) -> None:
        """Refuse those who wait, and everybody from now on."""
        self._closed = reason
        self.refuse(reason)

    def _hand_out(self) -> None:
        while self._taken < self._places and self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                self._taken += 1
                place.set_result(None)
