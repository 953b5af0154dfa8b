"""Routes of the OpenAI Responses API."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from strata.engine.protocol import CONTEXT_RESERVE
from strata.server import responses
from strata.server.generation import Ask, ContextError
from strata.server.problem import describe
from strata.server.replying import Json, read_body, reply
from strata.server.responses_answer import ResponseAnswer
from strata.server.responses_items import to_messages
from strata.server.responses_store import Kept, Store
from strata.server.service import Service
from strata.server.sse import EventStream

PATH = "/v1/responses"


def responses_routes(service: Service) -> list[Route]:
    """/v1/responses, and those that were stored by their ids."""
    routes = _Routes(service)
    return [
        Route(PATH, routes.create, methods=["POST"]),
        Route(f"{PATH}/input_tokens", routes.input_tokens, methods=["POST"]),
        Route(f"{PATH}/{{number}}", routes.retrieve, methods=["GET"]),
        Route(f"{PATH}/{{number}}", routes.delete, methods=["DELETE"]),
        Route(f"{PATH}/{{number}}/input_items", routes.input_items, methods=["GET"]),
    ]


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._generator = service.generator
        self._store = Store()

    async def create(self, request: Request) -> Response:
        body = await read_body(request, self._service)
        asked = responses.parse(body)
        before, size = self._before(asked)
        messages = [*before, *to_messages(asked.input or "", before)]
        tools = responses.tools_of(asked)
        ask = responses.to_ask(asked, messages, tools, self._generator.defaults)
        if asked.truncation == "auto":
            ask = await self._fitted(ask)

        def keep(response: dict[str, Any], message: dict[str, Any]) -> None:
            if asked.store is not False:
                total = size + len(body) + len(msgspec.json.encode(response))
                self._store.put(Kept(response, _items(asked, response["id"]), [*messages, message], total))

        def answer() -> ResponseAnswer:
            return ResponseAnswer(self._generator.name, self._generator.tokenizer, asked, ask, tools, keep)

        try:
            return await reply(self._service, request, ask, lambda prepared: answer(), stream=bool(asked.stream))
        except ContextError as failure:
            if not asked.stream:
                raise
            return _failed(answer(), failure)

    async def input_tokens(self, request: Request) -> Response:
        """The tokens of the prompt that the same body would make at /v1/responses."""
        asked = responses.parse(await read_body(request, self._service))
        before, _ = self._before(asked)
        messages = [*before, *to_messages(asked.input or "", before)]
        ask = responses.to_ask(asked, messages, responses.tools_of(asked), self._generator.defaults)
        return Json({"object": "response.input_tokens", "input_tokens": await self._generator.count(ask)})

    async def retrieve(self, request: Request) -> Response:
        if request.query_params.get("stream", "").lower() == "true":
            raise HTTPException(400, "A stored response is not streamed again; leave stream out.")
        return Json(self._store.get(request.path_params["number"]).response)

    async def delete(self, request: Request) -> Response:
        number = request.path_params["number"]
        self._store.delete(number)
        return Json({"id": number, "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        """The items that a stored response answered, the newest first as the API has it by default."""
        items = list(self._store.get(request.path_params["number"]).items)
        if request.query_params.get("order", "desc") != "asc":
            items.reverse()
        ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"]}
        return Json({"object": "list", "data": items, "has_more": False, **ends})

    def _before(self, asked: responses.ResponsesRequest) -> tuple[Sequence[Mapping[str, Any]], int]:
        """The conversation that a request goes on from, and its bytes."""
        if asked.previous_response_id is None:
            return (), 0
        kept = self._store.get(asked.previous_response_id)
        return kept.messages, kept.size

    async def _fitted(self, ask: Ask) -> Ask:
        """The request without the oldest turns that its context has no room for; `truncation` auto asks for that."""
        room = await self._generator.engine.context() - CONTEXT_RESERVE - 1
        messages = list(ask.messages or ())
        fixed = 1 if messages[0]["role"] in ("system", "developer") else 0
        starts = [at for at, message in enumerate(messages) if at >= fixed and message["role"] == "user"]
        if not starts or await self._generator.count(ask) <= room:
            return ask
        low, high = 0, len(starts) - 1  # the first turn that stays is one of these
        while low < high:
            middle = (low + high) // 2
            fits = await self._generator.count(_from_turn(ask, fixed, starts[middle])) <= room
            low, high = (low, middle) if fits else (middle + 1, high)
        return _from_turn(ask, fixed, starts[low])


def _from_turn(ask: Ask, fixed: int, at: int) -> Ask:
    """The request without the messages between the first `fixed` and the one at `at`."""
    messages = list(ask.messages or ())
    return replace(ask, messages=messages[:fixed] + messages[at:])


def _items(asked: responses.ResponsesRequest, number: str) -> list[dict[str, Any]]:
    """The input of a request as items with ids."""
    given = asked.input or ""
    content = [{"type": "input_text", "text": given}]
    items = [{"type": "message", "role": "user", "content": content}] if isinstance(given, str) else given
    return [{"id": f"item_{number.removeprefix('resp_')}_{index}", **item} for index, item in enumerate(items)]


def _failed(answer: ResponseAnswer, failure: ContextError) -> Response:
    """A stream that only fails: agents make a conversation shorter when a response says so, not when a status does."""

    async def frames() -> AsyncIterator[bytes]:
        yield answer.opening() + answer.failure(describe(failure))

    async def close() -> None:
        pass

    return EventStream(frames, close)
