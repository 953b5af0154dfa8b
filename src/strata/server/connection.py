"""One client's connection: HTTP/1.1 by uvicorn and h11, with an answer and an end for what is no proper request.

What is malformed is answered in the form of errors that the APIs have. What comes too slowly, or is not read by the
client, does not hold the connection for ever.
"""

import asyncio
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from strata import logs
from strata.server.error_form import error_body
from strata.server.guard import HEAD_TOO_LARGE
from strata.server.problem import Problem

LOG = logs.get("access")
HEAD_S = 20.0
"""From the first byte of a head, or from connecting, to its last."""
STUCK_S = 120.0
"""How long a client may take for what waits to be sent to it (asyncio's write buffer, 48 KiB of it)."""
LINGER_S = 5.0
"""How long what a client still sends is read after its answer: closed at once, it might not see the answer."""
_CODES = {400: "malformed_request", 408: "timeout", 431: "head_too_large", 501: "not_supported"}


class Connection(H11Protocol):
    """A connection in a server of uvicorn."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        self._stuck_timer: asyncio.TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._end_timer, self._stuck_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        super().data_received(data)
        self._watch_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            # Answered before its body was there (413, 401, ...): the rest of the body is read, and dropped.
            self._end_within(LINGER_S, self.transport.close)
        elif self._end_timer is not None:
            self._end_timer.cancel()
        self._watch_head()

    def send_400_response(self, msg: str) -> None:
        """Called where h11 finds the bytes to be no HTTP."""
        reason = sys.exception()
        status = reason.error_status_hint if isinstance(reason, h11.RemoteProtocolError) else 400
        if status == 431:
            msg = HEAD_TOO_LARGE
        elif reason is not None:
            # What follows are the bytes themselves, which may be a header with a key.
            msg = f"This is no HTTP/1.1 request: {str(reason).partition(': bytearray')[0]}."
        self._refuse(status, msg)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stuck_timer = self.loop.call_later(STUCK_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stuck_timer is not None:
            self._stuck_timer.cancel()

    def _watch_head(self) -> None:
        """A head that has begun has to end in time."""
        begun = self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0])
        if begun and self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._head_is_late)
        elif not begun and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._refuse(408, f"The head of the request did not arrive within {HEAD_S:g} s.")
        else:
            self.transport.close()

    def _refuse(self, status: int, message: str) -> None:
        """Answer what is no request, if that can still be answered, and end the connection."""
        self._refused = True
        begun: Any = self.cycle  # None before the first request, whatever its declared type says
        answering = self.conn.our_state is h11.SEND_RESPONSE
        LOG.info("%d before the request was whole: %s", status, ascii(message)[1:-1])
        if answering or self.conn.our_state is h11.IDLE:
            scope = self.scope if answering else {"path": ""}
            problem = Problem(status, "invalid_request_error", _CODES.get(status, "invalid_request"), message)
            self._answer(status, msgspec.json.encode(error_body(scope, problem)))
        if begun is not None and not begun.response_complete:
            begun.disconnected = True
            begun.message_event.set()
        self.flow.resume_reading()
        if self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
            self._end_within(LINGER_S, self.transport.close)
        else:
            self.transport.close()

    def _answer(self, status: int, body: bytes) -> None:
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        head = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
        for event in (head, h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")

    def _end_within(self, seconds: float, end: Callable[[], None]) -> None:
        if self._end_timer is not None:
            self._end_timer.cancel()
        self._end_timer = self.loop.call_later(seconds, end)
