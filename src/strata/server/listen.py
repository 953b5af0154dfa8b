"""Binds the port and runs the application on uvicorn until it is told to end."""

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from starlette.types import ASGIApp

from strata.errors import UsageError
from strata.server.connection import Connection
from strata.server.guard import HEAD_LIMIT

BACKLOG = 2048
DRAIN_S = 10
KEEP_ALIVE_S = 65
"""How long a connection is kept for its next request: longer than clients do, which would find it closed."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket (port 0: any free one). Raises UsageError when the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise UsageError(f"{host!r} is not an address of this machine; choose another with --host.") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(f"Port {port} at {host} is in use by another program; choose one with --port.") from None
        if error.errno == errno.EACCES:
            raise UsageError(f"Port {port} is not for this user; choose one above 1023 with --port.") from None
        raise UsageError(f"Cannot listen at {host} port {port}: {error.strerror}; see --host and --port.") from None
    return listener


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Nothing: HttpServer has the signals, since the engine has to be ended after the last answer."""
        yield


class HttpServer:
    """HTTP/1.1 on a bound socket. `on_end` is called when the end begins: `drain_s` seconds are left from there."""

    def __init__(
        self, app: ASGIApp, listener: socket.socket, *, on_end: Callable[[], None], drain_s: int = DRAIN_S
    ) -> None:
        config = uvicorn.Config(
            app, http=Connection, ws="none", lifespan="off", access_log=False, log_config=None, server_header=False,
            log_level="error", backlog=BACKLOG, timeout_graceful_shutdown=drain_s, timeout_keep_alive=KEEP_ALIVE_S,
            h11_max_incomplete_event_size=HEAD_LIMIT,
        )  # fmt: skip
        self._server = _Server(config)
        self._listener = listener
        self._on_end = on_end

    async def run(self) -> None:
        """Serve until `end` or, in a main thread, SIGINT or SIGTERM."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            # Not on Windows, and not outside the main thread: there the owner calls `end`.
            with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
                loop.add_signal_handler(number, self.end)
        await self._server.serve(sockets=[self._listener])

    def end(self) -> None:
        """Take no new connections, let requests in progress finish; called again: end at once."""
        if self._server.should_exit:
            self._server.force_exit = True
            return
        self._server.should_exit = True
        self._on_end()
