"""The way of a request that is answered by a generation, for every API alike: body, events, whole answer or stream."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from strata import logs
from strata.errors import StrataError
from strata.server.choices import Choice, merged, prepare_all
from strata.server.generation import Ask, Event, Prepared
from strata.server.problem import Problem, describe
from strata.server.service import Service
from strata.server.sse import Disconnected, EventStream, Feed, or_disconnect

P = TypeVar("P")
E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)
LOG = logs.get("server")
WHOLE_S = 3600.0
"""Longest silence between two events of an answer that does not stream."""


class Json(Response):
    """JSON, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


class Answer(Protocol[E_contra]):
    """An API's form of a reply, or of several, which it knows whole or as server-sent events."""

    def whole(self, events: Sequence[E_contra]) -> dict[str, Any]:
        """The answer as one object, of all its events (the last of a reply is End)."""
        ...

    def opening(self) -> bytes:
        """What a stream begins with."""
        ...

    def frames(self, event: E_contra) -> bytes:
        """One event (End too) as complete server-sent events; may be empty."""
        ...

    def keep_alive(self) -> bytes:
        """What is sent while nothing happens."""
        ...

    def failure(self, problem: Problem) -> bytes:
        """The rest of a stream that fails after it began."""
        ...


async def read_body(request: Request, service: Service) -> bytes:
    """The body. Raises HTTPException when it is too large, comes too slowly or is cut off."""
    limit = service.body_limit
    too_large = f"The body is larger than {limit} bytes."
    if int(request.headers.get("content-length", "0") or "0") > limit:
        raise HTTPException(413, too_large)
    parts, size = [], 0
    try:
        async with asyncio.timeout(service.body_s):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise HTTPException(413, too_large)
                parts.append(part)
    except TimeoutError:
        raise HTTPException(408, f"The body did not arrive within {service.body_s:g} s.") from None
    except ClientDisconnect:
        raise HTTPException(400, "The body was cut off.") from None
    return b"".join(parts)


async def reply(
    service: Service, request: Request, ask: Ask, answer: Callable[[Prepared], Answer[Event]], *, stream: bool
) -> Response:
    """Generate what is asked, in the form that `answer` gives it; a client that leaves ends the work."""
    generator = service.generator
    return await _respond(service, request, generator.prepare(ask), generator.events, answer, stream)


async def reply_all(
    service: Service, request: Request, asks: Sequence[Ask], answer: Answer[Choice], *, stream: bool
) -> Response:
    """Generate all that is asked, as the choices of one answer."""
    generator = service.generator
    return await _respond(
        service, request, prepare_all(generator, asks), partial(merged, generator), lambda _: answer, stream
    )


async def _respond(
    service: Service,
    request: Request,
    preparing: Coroutine[Any, Any, P],
    generate: Callable[[P], AsyncGenerator[E, None]],
    answer: Callable[[P], Answer[E]],
    stream: bool,
) -> Response:
    work = asyncio.create_task(preparing)
    try:
        prepared = await or_disconnect(work, request.receive)
        service.requests += 1
        if stream:
            return await _stream(service, generate(prepared), answer(prepared))
        whole = asyncio.create_task(_whole(generate(prepared), answer(prepared)))
        return Json(await or_disconnect(whole, request.receive))
    except Disconnected:
        return Response(status_code=499)


async def _whole(generated: AsyncGenerator[E, None], answer: Answer[E]) -> dict[str, Any]:
    events: list[E] = []
    feed = Feed(generated)
    try:
        while True:
            event = await feed.next(WHOLE_S)
            if event is not None:
                events.append(event)
    except StopAsyncIteration:
        return answer.whole(events)
    finally:
        await feed.close()


async def _stream(service: Service, generated: AsyncGenerator[E, None], answer: Answer[E]) -> Response:
    feed = Feed(generated)
    try:
        # An engine that fails at once is still told by the status; later the stream has begun with 200.
        await feed.settle(service.settle_s)
    except BaseException:
        await feed.close()
        raise

    async def frames() -> AsyncIterator[bytes]:
        yield answer.opening()
        try:
            while True:
                event = await feed.next(service.keep_alive_s)
                data = answer.keep_alive() if event is None else answer.frames(event)
                if data:
                    yield data
        except StopAsyncIteration:
            return
        except StrataError as failure:
            LOG.warning("%s", failure)
            yield answer.failure(describe(failure))

    return EventStream(frames, feed.close)
