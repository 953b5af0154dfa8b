"""The HTTP application: routes, and the way of a chat request through them."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

import strata
from strata import logs
from strata.errors import StrataError
from strata.server import openai
from strata.server.generation import End, Generator, Prepared
from strata.server.guard import Access, Guard
from strata.server.openai_answer import ChatAnswer
from strata.server.sse import KEEP_ALIVE, Disconnected, EventStream, Feed, or_disconnect
from strata.server.supervisor import State, Supervisor
from strata.text import Piece

LOG = logs.get("server")
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Strata</title>
<meta name="viewport" content="width=device-width"><body style="font:16px/1.5 system-ui;max-width:40em;margin:3em auto">
<h1>Strata</h1><p>This server answers OpenAI-style requests; it has no chat page yet.</p>
<ul><li>POST <code>/v1/chat/completions</code> (stream and not)</li><li><a href="/v1/models">/v1/models</a></li>
<li><a href="/health">/health</a></li><li><a href="/v1/status">/v1/status</a></li></ul></body></html>"""


@dataclass(frozen=True)
class Service:
    """What the application serves: a model's generator, its supervised engine, and how it may be reached."""

    generator: Generator
    engine: Supervisor
    access: Access = Access()
    keep_alive_s: float = 10.0
    settle_s: float = 1.0
    body_limit: int = 256 * 2**20
    body_s: float = 120.0
    started: float = field(default_factory=time.time)


class Json(Response):
    """JSON, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def create_app(service: Service) -> Starlette:
    """The application. Its owner starts and closes the engine. Raises UsageError for an unsafe `access`."""
    service.access.check()
    routes = _Routes(service)
    return Starlette(
        routes=[
            Route("/", routes.page),
            Route("/health", routes.health),
            Route("/v1/status", routes.status),
            Route("/v1/models", routes.models),
            Route("/v1/models/{name:path}", routes.model),
            Route("/v1/chat/completions", routes.chat, methods=["POST"]),
        ],
        middleware=[Middleware(Guard, access=service.access)],
        exception_handlers={HTTPException: _http_error, StrataError: _strata_error, Exception: _unexpected_error},
    )


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._engine = service.engine
        self._generator = service.generator
        self._requests = 0

    async def page(self, request: Request) -> Response:
        return HTMLResponse(_PAGE)

    async def health(self, request: Request) -> Response:
        state = self._engine.state
        context = await self._engine.context() if state is State.READY else None
        body = {
            "status": "ok" if state is State.READY else state.value,
            "service": "strata", "model": self._generator.name, "max_context": context,
            "images": False, "loaded": state is State.READY, "api_key": bool(self._service.access.keys),
        }  # fmt: skip
        return Json(body, 200 if state is State.READY else 503)

    async def status(self, request: Request) -> Response:
        ready = self._engine.state is State.READY
        body = {
            "service": "strata", "version": strata.__version__, "model": self._generator.name, "loaded": ready,
            "engine": {"state": self._engine.state.value, "restarts": self._engine.restarts,
                       "info": dict(self._engine.info)},
            "started": int(self._service.started), "uptime_s": int(time.time() - self._service.started),
            "context": {"max_positions": await self._engine.context() if ready else None},
            "concurrency": {"serving": self._engine.serving, "requested": self._engine.parallel},
            "dialects": ["openai"], "vision": False,
            "activity": {"requests": self._requests, "in_flight": self._engine.running + self._engine.waiting,
                         "waiting": self._engine.waiting},
        }  # fmt: skip
        return Json(body)

    async def models(self, request: Request) -> Response:
        return Json({"object": "list", "data": [await self._model()]})

    async def model(self, request: Request) -> Response:
        if request.path_params["name"] != self._generator.name:
            raise HTTPException(404, f"There is no model {request.path_params['name']!r}; {self._generator.name} is.")
        return Json(await self._model())

    async def _model(self) -> dict[str, Any]:
        ready = self._engine.state is State.READY
        return {
            "id": self._generator.name, "object": "model", "created": int(self._service.started), "owned_by": "strata",
            "status": {"value": "loaded" if ready else "unloaded"},
            "meta": {"n_ctx": await self._engine.context() if ready else None},
        }  # fmt: skip

    async def chat(self, request: Request) -> Response:
        body = await self._body(request)
        asked = openai.parse_chat(body)
        work = asyncio.create_task(self._generator.prepare(openai.to_ask(asked, self._generator.defaults)))
        try:
            prepared = await or_disconnect(work, request.receive)
            self._requests += 1
            scored = prepared.ask.logprobs is not None
            answer = ChatAnswer(self._generator.name, self._generator.tokenizer, scored=scored)
            if asked.stream:
                return await self._stream(prepared, answer, asked.include_usage)
            return Json(await or_disconnect(asyncio.create_task(self._whole(prepared, answer)), request.receive))
        except Disconnected:
            return Response(status_code=499)

    async def _body(self, request: Request) -> bytes:
        limit = self._service.body_limit
        too_large = f"The body is larger than {limit} bytes."
        if int(request.headers.get("content-length", "0") or "0") > limit:
            raise HTTPException(413, too_large)
        parts, size = [], 0
        try:
            async with asyncio.timeout(self._service.body_s):
                async for part in request.stream():
                    size += len(part)
                    if size > limit:
                        raise HTTPException(413, too_large)
                    parts.append(part)
        except TimeoutError:
            raise HTTPException(408, f"The body did not arrive within {self._service.body_s:g} s.") from None
        except ClientDisconnect:
            raise HTTPException(400, "The body was cut off.") from None
        return b"".join(parts)

    async def _whole(self, prepared: Prepared, answer: ChatAnswer) -> dict[str, Any]:
        pieces: list[Piece] = []
        feed = Feed(self._generator.events(prepared))
        try:
            while True:
                event = await feed.next(3600)
                if isinstance(event, Piece):
                    pieces.append(event)
                elif isinstance(event, End):
                    return answer.completion(pieces, event)
        finally:
            await feed.close()

    async def _stream(self, prepared: Prepared, answer: ChatAnswer, include_usage: bool) -> Response:
        feed = Feed(self._generator.events(prepared))
        try:
            # An engine that fails at once is still told by the status; later the stream has begun with 200.
            await feed.settle(self._service.settle_s)
        except BaseException:
            await feed.close()
            raise

        async def events() -> AsyncIterator[bytes]:
            yield _data(answer.first())
            try:
                while True:
                    event = await feed.next(self._service.keep_alive_s)
                    if isinstance(event, Piece):
                        yield _data(answer.piece(event))
                    elif isinstance(event, End):
                        for chunk in answer.last(event, include_usage):
                            yield _data(chunk)
                        break
                    else:
                        yield KEEP_ALIVE
            except StrataError as failure:
                LOG.warning("%s", failure)
                yield _data(openai.error(failure)[1])
            yield b"data: [DONE]\n\n"

        return EventStream(events, feed.close)


def _data(value: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


async def _strata_error(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, StrataError)
    status, body, headers = openai.error(failure)
    if status >= 500:
        LOG.warning("%s", failure)
    return Json(body, status, headers)


async def _http_error(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed", 413: "body_too_large", 408: "timeout"}
    message = failure.detail
    if failure.status_code == 404 and message == "Not Found":
        message = f"There is nothing at {request.url.path}; see / for what there is."
    if failure.status_code == 405:
        message = f"{request.method} is not what {request.url.path} is for."
    body = openai.plain_error(message, "invalid_request_error", code.get(failure.status_code, "invalid_request"))
    return Json(body, failure.status_code, failure.headers)


async def _unexpected_error(request: Request, failure: Exception) -> Response:
    return Json(openai.plain_error("The server failed on this request; its log says how.", "server_error", "bug"), 500)
