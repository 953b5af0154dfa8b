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
        model = self._model()
        ends = {"first_id": model["id"], "last_id": model["id"], "has_more": False}
        return Json({"object": "list", "data": [model], **ends})

    async def model(self, request: Request) -> Response:
        name = self._service.generator.name
        if request.path_params["name"] != name:
            raise HTTPException(404, f"There is no model {request.path_params['name']!r}; {name} is.")
        return Json(self._model())

    async def embeddings(self, request: Request) -> Response:
        # Clients try again after a 5xx unless they are told that it is of no use.
        raise HTTPException(
            501, f"The model {self._service.generator.name} writes text; it makes no embeddings.",
            {"x-should-retry": "false"},
        )  # fmt: skip

    def _model(self) -> dict[str, Any]:
        """The model as both APIs have it: OpenAI's fields, with llama.cpp's `meta`, and Anthropic's."""
        engine, generator, facts = self._service.engine, self._service.generator, self._service.facts
        return {
            "id": generator.name, "object": "model", "created": int(self._service.started), "owned_by": "strata",
            "type": "model", "display_name": generator.name,
            "created_at": datetime.fromtimestamp(int(self._service.started), UTC).isoformat(),
            "status": {"value": "loaded" if engine.state is State.READY else "unloaded"},
            "architecture": facts.architecture, "aliases": [],
            "meta": {
                "n_ctx": engine.max_context, "n_ctx_train": facts.native_context, "n_vocab": generator.tokenizer.size,
                "n_params": facts.parameters, "size": facts.nbytes,
            },
        }  # fmt: skip
