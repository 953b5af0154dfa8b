"""Routes of the Anthropic API."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from strata.server import anthropic
from strata.server.anthropic_answer import MessagesAnswer
from strata.server.error_form import request_id
from strata.server.generation import Ask
from strata.server.replying import Json, read_body, reply
from strata.server.service import Service


def anthropic_routes(service: Service) -> list[Route]:
    """/v1/messages, /v1/messages/count_tokens."""
    routes = _Routes(service)
    return [
        Route(anthropic.PATH, routes.messages, methods=["POST"]),
        Route(f"{anthropic.PATH}/count_tokens", routes.count_tokens, methods=["POST"]),
    ]


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def messages(self, request: Request) -> Response:
        asked = anthropic.parse(await read_body(request, self._service))
        ask = self._ask(asked)
        anthropic.check_limit(asked, ask)
        name = self._service.generator.name
        return await reply(
            self._service, request, ask,
            lambda prepared: MessagesAnswer(
                name, prepared.prompt_tokens, request_id=request_id(request.scope), shows_thinking=asked.shows_thinking
            ),
            stream=bool(asked.stream),
        )  # fmt: skip

    async def count_tokens(self, request: Request) -> Response:
        asked = anthropic.parse(await read_body(request, self._service))
        return Json({"input_tokens": await self._service.generator.count(self._ask(asked))})

    def _ask(self, asked: anthropic.MessagesRequest) -> Ask:
        generator = self._service.generator
        return anthropic.to_ask(asked, generator.defaults, switchable=generator.can_skip_thinking)
