"""The two directions of the line protocol: requests from a reading thread, reports written at once."""

import os
import queue
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator

from strata import logs
from strata.engine.protocol import (
    BStop,
    BYield,
    Command,
    Gen,
    Lanes,
    Quit,
    Report,
    Restore,
    Save,
    Stop,
    Vram,
    parse_command,
)
from strata.errors import RequestError

log = logs.get("engine")

# A prompt of a million tokens takes 8 MiB; a longer line is refused without being held in memory.
LONGEST_LINE = 32 << 20
_PIECE = 1 << 16
Request = Gen | Save | Restore | Vram


class Disconnected(Exception):
    """Nobody reads our reports any more."""


class Order:
    """A command that has an answer, and what was asked of it since. `request`: an error is one to be told.

    `lanes`: its client speaks of lanes. `stopped` and `yield_to` (a slot) are wishes that the next window heeds.
    `released` has to be set before the line that frees the control lines is written, `finished` before its last line.
    """

    def __init__(self, request: Request | RequestError, *, lanes: bool = False) -> None:
        self.request = request
        self.lanes = lanes
        self.stopped = False
        self.yield_to: int | None = None
        self.released = lanes
        self.finished = False

    @property
    def slot(self) -> int | None:
        """The slot or lane that its line names."""
        return getattr(self.request, "slot", None)

    def end(self) -> None:
        self.released = self.finished = True


def _on_control(order: Order) -> bool:
    return not order.released


class Inbox:
    """Orders in the sequence of their lines. Wishes (STOP, BSTOP, BYIELD) act at once, on the order they mean.

    One thread calls `put`, another `take`; `interrupt` may be called by any, a signal handler too (nothing here takes
    a lock that an interrupted thread could hold: SimpleQueue.put is reentrant, and only `put` takes orders off the
    list).
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self._open: list[Order] = []
        self._lanes = False
        self.interrupted = False

    def put(self, line: str) -> bool:
        """Take in one line; False if it was the last (QUIT)."""
        command: Command | RequestError
        try:
            command = parse_command(line)
        except RequestError as error:
            command = error
        match command:
            case Quit():
                self._orders.put(None)
                return False
            case Stop():
                for order in self._meant("STOP", _on_control)[:1]:
                    order.stopped = True
            case BStop(slot):
                for order in self._meant("BSTOP", lambda order: order.slot == slot)[-1:]:
                    order.stopped = True
            case BYield(slot):
                for order in self._meant("BYIELD", _on_control)[:1]:
                    order.yield_to = slot
            case Lanes():
                self._lanes = True
            case _:
                self._add(Order(command, lanes=self._lanes))
        return True

    def take(self, *, wait: bool) -> tuple[list[Order], bool]:
        """Orders that have come since, and whether more may come. `wait`: at least one, or the end."""
        orders: list[Order] = []
        while True:
            try:
                order = self._orders.get(block=wait and not orders)
            except queue.Empty:
                return orders, True
            if order is None or self.interrupted:
                return orders, False
            orders.append(order)

    def interrupt(self) -> None:
        """Stop what is in progress and end after it, whatever waits."""
        self.interrupted = True
        for order in list(self._open):
            order.stopped = True
        self._orders.put(None)

    def interrupt_on(self, *numbers: int) -> None:
        """Start the thread that interrupts when one of these signals comes. To be called by the main thread.

        Python runs a handler in the main thread, between two of its steps: where that thread is about to wait in
        `take`, or the system hands the signal to another one, nothing would end the wait.
        """
        heard, told = socket.socketpair()
        told.setblocking(False)
        signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        for number in numbers:
            signal.signal(number, lambda *_: None)

        def listen() -> None:
            with heard, told:
                while True:
                    if heard.recv(1)[0] in numbers:
                        self.interrupt()

        threading.Thread(target=listen, name="signals", daemon=True).start()

    def _add(self, order: Order) -> None:
        self._open = [one for one in self._open if not one.finished]
        self._open.append(order)
        self._orders.put(order)

    def _meant(self, word: str, meant: Callable[[Order], bool]) -> list[Order]:
        """Open orders that a wish may mean, oldest first; a wish that came too late finds none."""
        found = [order for order in self._open if not order.finished and meant(order)]
        if not found:
            log.info("%s came when there was nothing that it could mean", word)
        return found

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
