"""The two directions of the line protocol: requests from a reading thread, reports written at once."""

import os
import queue
import re
import threading
from collections import deque
from collections.abc import Iterator

from strata import logs
from strata.engine.protocol import (
    EXPECTED,
    NO_SLOT,
    BStop,
    BYield,
    Command,
    Gen,
    Ignored,
    Quit,
    Report,
    Stop,
    parse_command,
)
from strata.errors import RequestError

log = logs.get("engine")

# A prompt of a million tokens takes 8 MiB; a longer line is refused without being held in memory.
LONGEST_LINE = 32 << 20
_PIECE = 1 << 16


class Disconnected(Exception):
    """Nobody reads our reports any more."""


class Order:
    """A request as it arrived, and whether it is to stop. `finished` has to be set before its last line is written."""

    def __init__(self, request: Gen | RequestError) -> None:
        self.request = request
        self.stopped = False
        self.finished = False


class Inbox:
    """Orders in the sequence of their lines. STOP acts at once, on the oldest order that is not finished.

    One thread calls `put`, another `next`; `interrupt` may be called by a signal handler (nothing here takes a lock
    that the interrupted thread could hold: SimpleQueue.put is reentrant, and only `put` takes orders off the deque).
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._open: deque[Order] = deque()
        self._closed = False

    def put(self, line: str) -> bool:
        """Take in one line; False if it was the last (QUIT)."""
        command: Gen | Stop | Quit | Ignored | RequestError
        try:
            command = _without_slots(parse_command(line))
        except RequestError as error:
            command = error
        if isinstance(command, Quit):
            self._orders.put(None)
            return False
        if isinstance(command, Ignored):
            log.info("%s", command.why)
        elif isinstance(command, Stop):
            self._stop()
        else:
            while self._open and self._open[0].finished:
                self._open.popleft()
            order = Order(command)
            self._open.append(order)
            self._orders.put(order)
        return True

    def next(self) -> Order | None:
        """Wait for the next order; None: end the process."""
        order = self._orders.get()
        return None if self._closed else order

    def interrupt(self) -> None:
        """Stop what is in progress and end after it, whatever waits."""
        self._closed = True
        self._stop()
        self._orders.put(None)

    def _stop(self) -> None:
        # A STOP between requests finds none: it came too late for the last one and is dropped.
        order = next((order for order in list(self._open) if not order.finished), None)
        if order is not None:
            order.stopped = True

    def read_from(self, descriptor: int) -> threading.Thread:
        """Start the thread that reads lines from a file descriptor until QUIT or the end."""
        thread = threading.Thread(target=self._read, args=(descriptor,), name="reader", daemon=True)
        thread.start()
        return thread

    def _read(self, descriptor: int) -> None:
        for line in lines(descriptor):
            if not self.put(line):
                return
        self.put("QUIT")


def _without_slots(command: Command) -> Gen | Stop | Quit | Ignored:
    """A command as an engine takes it that has no slots. Raises RequestError for one that it cannot serve."""
    if isinstance(command, BStop | BYield):
        return Ignored("BSTOP or BYIELD: no slot is decoding and no read is in flight that could give way to one")
    if isinstance(command, Gen) and command.slot is not None:
        raise RequestError(NO_SLOT)
    if isinstance(command, Gen | Stop | Quit | Ignored):
        return command
    raise RequestError(EXPECTED)


def lines(descriptor: int, longest: int = LONGEST_LINE) -> Iterator[str]:
    """Lines (UTF-8, ended by \\n or \\r\\n) of a file descriptor; a last line without an end counts too.

    Of a line above `longest` bytes nothing is held: it will be refused. `os.read` and not `sys.stdin`: a thread that
    waits inside a Python file object cannot be left behind when the process ends.
    """
    buffer = bytearray()
    cut = False
    while True:
        try:
            piece = os.read(descriptor, _PIECE)
        except OSError as error:
            log.warning("reading requests failed: %s", error)
            piece = b""
        *ends, rest = piece.split(b"\n")
        for end in ends:
            buffer += end
            yield _text(buffer, cut, longest)
            buffer, cut = bytearray(), False
        buffer += rest
        if len(buffer) > longest:
            buffer, cut = bytearray(), True
        if not piece:
            break
    if buffer or cut:
        yield _text(buffer, cut, longest)


def _text(line: bytes | bytearray, cut: bool, longest: int) -> str:
    if cut or len(line) > longest:
        log.warning("a line of more than %d bytes was refused", longest)
        return "GEN"
    return re.sub(r"\r\Z", "", line.decode("utf-8", errors="replace"))


class Outbox:
    """Writes each report as one line, at once, to a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __call__(self, report: Report) -> None:
        """Raises Disconnected if the reader has gone away."""
        rest = memoryview((report.format() + "\n").encode())
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except OSError as error:
                raise Disconnected(f"nobody reads the engine's output any more ({error})") from None
