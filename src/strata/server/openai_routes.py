"""Routes of the OpenAI API that generate."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from strata.server import openai
from strata.server.openai_answer import ChatAnswer
from strata.server.replying import read_body, reply
from strata.server.service import Service


def openai_routes(service: Service) -> list[Route]:
    """/v1/chat/completions."""
    routes = _Routes(service)
    return [
        Route("/v1/chat/completions", routes.chat, methods=["POST"]),
    ]


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service

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
