"""Routes that say how the server is: health, status."""

import time

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

import strata
from strata.server.replying import Json
from strata.server.service import Service
from strata.server.supervisor import State

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Strata</title>
<meta name="viewport" content="width=device-width"><body style="font:16px/1.5 system-ui;max-width:40em;margin:3em auto">
<h1>Strata</h1><p>This server answers OpenAI-style requests; it has no chat page yet.</p>
<ul><li>POST <code>/v1/chat/completions</code> (stream and not)</li><li><a href="/v1/models">/v1/models</a></li>
<li><a href="/health">/health</a></li><li><a href="/v1/status">/v1/status</a></li></ul></body></html>"""


def operations_routes(service: Service) -> list[Route]:
    """/, /health, /v1/status."""
    routes = _Routes(service)
    return [Route("/", routes.page), Route("/health", routes.health), Route("/v1/status", routes.status)]


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._engine = service.engine
        self._generator = service.generator

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
            "activity": {"requests": self._service.requests, "in_flight": self._engine.running + self._engine.waiting,
                         "waiting": self._engine.waiting},
        }  # fmt: skip
        return Json(body)
