"""Routes of the OpenAI API that generate."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from strata.server import openai, openai_completions
from strata.server.openai_answer import ChatAnswer
from strata.server.openai_completions import CompletionAnswer
from strata.server.replying import read_body, reply_all
from strata.server.service import Service


def openai_routes(service: Service) -> list[Route]:
    """/v1/chat/completions, /v1/completions."""
    routes = _Routes(service)
    return [
        Route("/v1/chat/completions", routes.chat, methods=["POST"]),
        Route("/v1/completions", routes.complete, methods=["POST"]),
    ]


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def chat(self, request: Request) -> Response:
        asked, grammar = openai.parse_chat(await read_body(request, self._service))
        generator = self._service.generator
        ask = openai.to_ask(asked, generator.defaults, grammar)
        asks = openai.choices(ask, asked.n)
        answer = ChatAnswer(
            generator.name, generator.tokenizer, count=len(asks), scored=ask.logprobs is not None,
            include_usage=asked.include_usage, progress=ask.progress,
        )  # fmt: skip
        return await reply_all(self._service, request, asks, answer, stream=bool(asked.stream))

    async def complete(self, request: Request) -> Response:
        asked, grammar = openai_completions.parse(await read_body(request, self._service))
        generator = self._service.generator
        asks = openai_completions.to_asks(asked, generator.defaults, grammar)
        echoes = [generator.prompt_text(ask) if asked.echo else "" for ask in asks]
        answer = CompletionAnswer(
            generator.name, generator.tokenizer, echoes=echoes, each=asked.n or 1, scored=asked.logprobs is not None,
            include_usage=asked.include_usage, progress=bool(asked.return_progress),
        )  # fmt: skip
        return await reply_all(self._service, request, asks, answer, stream=bool(asked.stream))
