"""A watch over computing: work that takes far too long is reported, and the process given up.

Only computing is watched. Waiting for a request, or for a client that reads slowly, is no stall.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# The thread looks this often within the limit, so a stall is noticed at most a quarter late.
_LOOKS = 4


class Watchdog:
    """`limit` in seconds, 0: never; `stalled(seconds, what)` is called once, from the watching thread."""

    def __init__(self, limit: float, stalled: Callable[[float, str], None]) -> None:
        self.limit = limit
        self._stalled = stalled
        self._work: tuple[float, str] | None = None

    @contextmanager
    def watch(self, what: str) -> Iterator[None]:
        """Watch the block that follows; `what` says in the report what did not end."""
        self._work = (time.monotonic(), what)
        try:
            yield
        finally:
            self._work = None

    def start(self) -> None:
        if self.limit > 0:
            threading.Thread(target=self._look, name="watchdog", daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(self.limit / _LOOKS)
            work = self._work
            if work is not None and time.monotonic() - work[0] > self.limit:
                self._stalled(time.monotonic() - work[0], work[1])
                return
