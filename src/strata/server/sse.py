"""Server-sent events over HTTP: a feed that runs beside its reader, keep-alives, and clients that leave."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from strata import logs
from strata.server.mailbox import Mailbox

T = TypeVar("T")
LOG = logs.get("server")
KEEP_ALIVE = b": keep-alive\n\n"
_END = object()


def data(value: Mapping[str, Any]) -> bytes:
    """An event without a name."""
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def named(value: Mapping[str, Any]) -> bytes:
    """An event that is named as its `type` is."""
    return f"event: {value['type']}\n".encode() + data(value)


class Disconnected(Exception):
    """The client has left."""


class Feed(Generic[T]):
    """Events collected by a task of their own: a client that reads slowly does not hold the engine up."""

    def __init__(self, events: AsyncGenerator[T, None]) -> None:
        self._box: Mailbox[Any] = Mailbox()
        self._task = asyncio.create_task(self._collect(events))

    async def _collect(self, events: AsyncGenerator[T, None]) -> None:
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    self._box.put(event)
        except Exception as error:
            self._box.put(error)
        finally:
            self._box.put(_END)

    async def settle(self, limit_s: float) -> None:
        """Wait for the first event, at most `limit_s`; an error that came instead of any event is raised here."""
        if await self._box.arrives(limit_s) and isinstance(self._box.first(), Exception):
            raise self._box.take()

    async def next(self, limit_s: float) -> T | None:
        """The next event, or None after `limit_s` without one. Raises StopAsyncIteration at the end, or the error."""
        if not await self._box.arrives(limit_s):
            return None
        item = self._box.take()
        if item is _END:
            raise StopAsyncIteration
        if isinstance(item, Exception):
            raise item
        return item  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Stop the work behind the feed, if it still goes on."""
        self._box.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class EventStream(Response):
    """A `text/event-stream` response of ready-made event bytes; ends the work when the client leaves."""

    def __init__(
        self, events: Callable[[], AsyncIterator[bytes]], close: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        self._events = events
        self._close = close
        self.status_code = 200
        self.background = None
        self.init_headers(
            {
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-cache",
                "x-accel-buffering": "no",
            }
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = asyncio.create_task(self._write(send))
        try:
            await or_disconnect(writer, receive)
        except Disconnected:
            LOG.info("499: the client left during the stream")
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            await self._close()

    async def _write(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for data in self._events():
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def or_disconnect(task: "asyncio.Task[T]", receive: Receive) -> T:
    """The task's result. Raises Disconnected, and cancels the task, when the client leaves before it is there."""

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    watcher = asyncio.create_task(left())
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise Disconnected
        return task.result()
    finally:
        task.cancel()
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
