"""Routes about models: which there are, for clients of either API, and what this one cannot do."""

from datetime import UTC, datetime
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from strata.server.replying import Json
from strata.server.service import Service
from strata.server.supervisor import State


def model_routes(service: Service) -> list[Route]:
    """/v1/models, /models, /v1/embeddings."""
    routes = _Routes(service)
    return [
        Route("/v1/models", routes.models),
        Route("/models", routes.models),
        Route("/v1/models/{name:path}", routes.model),
        Route("/v1/embeddings", routes.embeddings, methods=["POST"]),
    ]


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def models(self, request: Request) -> Response:
        names = self._names()
        ends = {"first_id": names[0], "last_id": names[-1], "has_more": False}
        return Json({"object": "list", "data": [self._model(name) for name in names], **ends})

    async def model(self, request: Request) -> Response:
        name, names = request.path_params["name"], self._names()
        if name not in names:
            raise HTTPException(404, f"There is no model {name!r}, but {', '.join(names)}.")
        return Json(self._model(name))

    async def embeddings(self, request: Request) -> Response:
        # Clients try again after a 5xx unless they are told that it is of no use.
        raise HTTPException(
            501, f"The model {self._service.generator.name} writes text; it makes no embeddings.",
            {"x-should-retry": "false"},
        )  # fmt: skip

    def _names(self) -> list[str]:
        """Of the one model: its own, then the others."""
        own = self._service.generator.name
        return [own, *(alias for alias in dict.fromkeys(self._service.aliases) if alias != own)]

    def _model(self, name: str) -> dict[str, Any]:
        """The model under one of its names, as both APIs have it: OpenAI's fields, with llama.cpp's `meta`, and
        Anthropic's.
        """
        own, *aliases = self._names()
        engine, generator, facts = self._service.engine, self._service.generator, self._service.facts
        return {
            "id": name, "object": "model", "created": int(self._service.started), "owned_by": "strata",
            "type": "model", "display_name": name,
            "created_at": datetime.fromtimestamp(int(self._service.started), UTC).isoformat(),
            "status": {"value": "loaded" if engine.state is State.READY else "unloaded"},
            "architecture": facts.architecture, "aliases": aliases if name == own else [],
            "alias_of": None if name == own else own,
            "meta": {
                "n_ctx": engine.max_context, "n_ctx_train": facts.native_context, "n_vocab": generator.tokenizer.size,
                "n_params": facts.parameters, "size": facts.nbytes,
            },
        }  # fmt: skip
