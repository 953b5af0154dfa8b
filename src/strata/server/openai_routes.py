"""Routes of the OpenAI API."""

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from strata.server import openai
from strata.server.openai_answer import ChatAnswer
from strata.server.replying import Json, read_body, reply
from strata.server.service import Service
from strata.server.supervisor import State


def openai_routes(service: Service) -> list[Route]:
    """/v1/models, /v1/chat/completions."""
    routes = _Routes(service)
    return [
        Route("/v1/models", routes.models),
        Route("/v1/models/{name:path}", routes.model),
        Route("/v1/chat/completions", routes.chat, methods=["POST"]),
    ]


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def models(self, request: Request) -> Response:
        return Json({"object": "list", "data": [await self._model()]})

    async def model(self, request: Request) -> Response:
        name = self._service.generator.name
        if request.path_params["name"] != name:
            raise HTTPException(404, f"There is no model {request.path_params['name']!r}; {name} is.")
        return Json(await self._model())

    async def _model(self) -> dict[str, Any]:
        engine = self._service.engine
        ready = engine.state is State.READY
        return {
            "id": self._service.generator.name, "object": "model", "created": int(self._service.started),
            "owned_by": "strata", "status": {"value": "loaded" if ready else "unloaded"},
            "meta": {"n_ctx": await engine.context() if ready else None},
        }  # fmt: skip

    async def chat(self, request: Request) -> Response:
        asked, grammar = openai.parse_chat(await read_body(request, self._service))
        generator = self._service.generator
        ask = openai.to_ask(asked, generator.defaults, grammar)
        scored = ask.logprobs is not None
        return await reply(
            self._service, request, ask,
            lambda prepared: ChatAnswer(
                generator.name, generator.tokenizer, scored=scored, include_usage=asked.include_usage
            ),
            stream=bool(asked.stream),
        )  # fmt: skip
