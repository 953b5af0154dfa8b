"""/openapi.json: a description of every route (OpenAPI 3.1, https://spec.openapis.org/oas/v3.1.0).

`OPERATIONS` is the table: a test compares it with the routes that there are. The bodies of requests are described by
the very types that read them.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import strata
from strata.server import anthropic
from strata.server.anthropic import MessagesRequest
from strata.server.guard import OPEN_PATHS
from strata.server.openai import ChatRequest
from strata.server.openai_completions import CompletionRequest
from strata.server.openapi_answers import ANSWERS
from strata.server.openapi_parts import Schema, ref
from strata.server.openapi_requests import FIELDS, REQUIRED
from strata.server.operations import DetokenizeRequest, TokenizeRequest
from strata.server.replying import Json
from strata.server.responses import ResponsesRequest

PATH = "/openapi.json"
_HTML, _PROMETHEUS, _EVENTS = "text/html", "text/plain", "text/event-stream"
_REASONS = {
    400: "The request is wrong; the message says where.", 401: "A key is needed.",
    403: "The host name or the page's origin may not use this server.", 404: "There is no such thing.",
    408: "The body came too slowly.", 413: "The body is too large.", 415: "The body is not sent as JSON.",
    429: "Too many requests wait; see Retry-After.", 431: "The head is too large.",
    501: "The model cannot do this.", 503: "The engine cannot answer now; see Retry-After.",
}  # fmt: skip
_EVERYWHERE = (401, 403, 431)
_WITH_BODY = (400, 408, 413, 415)
_GENERATING = (429, 503)


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path. `answer` names the schema of its 200; `kinds` are other content types of that.

    `query` are parameters with their schemas, `errors` statuses beside those that every route has.
    """

    tag: str
    summary: str
    answer: str | None = None
    body: type[msgspec.Struct] | None = None
    kinds: tuple[str, ...] = ()
    query: Mapping[str, Schema] | None = None
    errors: tuple[int, ...] = ()
    succeeds: bool = True


def _generates(tag: str, summary: str, answer: str, body: type[msgspec.Struct], *errors: int) -> Operation:
    return Operation(tag, summary, answer, body, (_EVENTS,), errors=(*_WITH_BODY, *_GENERATING, *errors))


_HEALTH = Operation("server", "Whether the engine is ready (503: not yet, or no more)", "Health", errors=(503,))
_MODELS = Operation("models", "The model that is served", "Models")
_METRICS_QUERY: Mapping[str, Schema] = {
    "requests": {"type": "string", "pattern": "^([0-9]{1,6}|all)$", "description": "how many of the last requests"},
    "history": {"type": "string", "pattern": "^[0-9]{1,6}$", "description": "how many of the last seconds"},
    "format": {"type": "string", "enum": ["json", "prometheus"]},
}

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/v1/chat/completions"): _generates("openai", "A reply to a conversation", "ChatCompletion", ChatRequest),
    ("POST", "/v1/completions"): _generates("openai", "The continuation of a text", "Completion", CompletionRequest),
    ("POST", "/v1/responses"): _generates("openai", "A reply as items", "Response", ResponsesRequest, 404),
    ("POST", "/v1/responses/input_tokens"): Operation(
        "openai", "The tokens of the prompt that such a request makes", "InputTokens", ResponsesRequest,
        errors=(*_WITH_BODY, 404),
    ),
    ("GET", "/v1/responses/{number}"): Operation(
        "openai", "A response that is kept", "Response", errors=(400, 404),
        query={"stream": {"type": "string", "enum": ["false"], "description": "kept responses do not stream"}},
    ),
    ("DELETE", "/v1/responses/{number}"): Operation("openai", "Keep a response no longer", "Deleted", errors=(404,)),
    ("GET", "/v1/responses/{number}/input_items"): Operation(
        "openai", "What a response that is kept has answered", "ResponseItems", errors=(404,),
        query={"order": {"type": "string", "enum": ["asc", "desc"]}},
    ),
    ("POST", "/v1/messages"): _generates("anthropic", "A reply to a conversation", "Message", MessagesRequest),
    ("POST", "/v1/messages/count_tokens"): Operation(
        "anthropic", "The tokens of the prompt that such a request makes", "InputTokens", MessagesRequest,
        errors=_WITH_BODY,
    ),
    ("GET", "/v1/models"): _MODELS,
    ("GET", "/models"): _MODELS,
    ("GET", "/v1/models/{name}"): Operation("models", "One model", "Model", errors=(404,)),
    ("POST", "/v1/embeddings"): Operation(
        "models", "Not supported: the model makes none", errors=(415, 501), succeeds=False
    ),
    ("GET", "/health"): _HEALTH,
    ("GET", "/api/health"): _HEALTH,
    ("GET", "/version"): Operation("server", "Of the server and its engine", "Version"),
    ("GET", "/status"): Operation("server", "The request that has run longest", "Now"),
    ("GET", "/v1/status"): Operation("server", "Model, engine and machine", "Status"),
    ("GET", "/slots"): Operation("server", "What is done in each slot", "Slots"),
    ("GET", "/props"): Operation("server", "Defaults and the chat template", "Props"),
    ("GET", "/metrics"): Operation(
        "server", "Counters, as JSON or for Prometheus", "Metrics", None, (_PROMETHEUS,), _METRICS_QUERY, (400,)
    ),
    ("POST", "/tokenize"): Operation(
        "tokenizer", "The tokens of a text", "Tokens", TokenizeRequest, errors=_WITH_BODY
    ),
    ("POST", "/detokenize"): Operation(
        "tokenizer", "The text of tokens", "Text", DetokenizeRequest, errors=_WITH_BODY
    ),
    ("GET", PATH): Operation("server", "This description", "Document"),
    ("GET", "/"): Operation("page", "The page with chat and monitor", None, None, (_HTML,)),
    ("GET", "/page/{name}"): Operation(
        "page", "A file of the page", None, None, ("text/css", "text/javascript", "image/svg+xml",
                                                    "application/manifest+json", _HTML), errors=(404,)
    ),
}  # fmt: skip


def openapi_route(others: Sequence[Route], *, keys: bool) -> Route:
    """The route that describes the others and itself. `keys`: the server wants one."""

    @functools.cache
    def text() -> bytes:
        return msgspec.json.encode(document([*others, route], keys=keys))

    async def serve(request: Request) -> Response:
        return Response(text(), media_type=Json.media_type)

    route = Route(PATH, serve)
    return route


def paths_of(routes: Sequence[Route]) -> list[tuple[str, str]]:
    """Methods and paths of routes as the table names them."""
    return [
        (method, route.path.replace(":path}", "}"))
        for route in routes for method in sorted(route.methods or ()) if method != "HEAD"
    ]  # fmt: skip


def document(routes: Sequence[Route], *, keys: bool) -> Schema:
    """The description of those routes that the table has."""
    paths: dict[str, dict[str, Any]] = {}
    for method, path in paths_of(routes):
        if (operation := OPERATIONS.get((method, path))) is not None:
            paths.setdefault(path, {})[method.lower()] = _operation(method, path, operation, keys=keys)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Strata", "version": strata.__version__, "license": {"name": "Apache-2.0"},
            "description": "Local inference of a large language model, with the APIs of OpenAI and Anthropic.",
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": {**_requests(), **ANSWERS},
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }  # fmt: skip


def _requests() -> dict[str, Schema]:
    """The schemas of all bodies, with what is said of their fields beside their types."""
    types = {operation.body for operation in OPERATIONS.values() if operation.body is not None}
    ordered = sorted(types, key=lambda kind: kind.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    for name, fields in FIELDS.items():
        schemas[name]["properties"].update(fields)
        schemas[name]["required"] = sorted({*schemas[name].get("required", ()), *REQUIRED.get(name, ())})
    return schemas


def _operation(method: str, path: str, operation: Operation, *, keys: bool) -> Schema:
    names = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}} for name in names
    ]
    parameters += [{"name": name, "in": "query", "schema": schema} for name, schema in (operation.query or {}).items()]
    described: Schema = {
        "operationId": f"{method.lower()}{path.translate(str.maketrans('/{}.', '____')).rstrip('_')}",
        "tags": [operation.tag], "summary": operation.summary, "responses": _responses(path, operation, keys=keys),
    }  # fmt: skip
    if keys:
        is_open = path in OPEN_PATHS or operation.tag == "page"
        described["security"] = [] if is_open else [{"bearer": []}, {"key": []}]
    if parameters:
        described["parameters"] = parameters
    if operation.body is not None:
        schema = ref(operation.body.__name__)
        described["requestBody"] = {"required": True, "content": {Json.media_type: {"schema": schema}}}
    return described


def _responses(path: str, operation: Operation, *, keys: bool) -> Schema:
    # Events are described by the APIs' owners; to a schema each would have to be an object.
    texts = [kind for kind in operation.kinds if kind.startswith("text/") and kind != _EVENTS]
    content: Schema = {kind: {"schema": {"type": "string"}} if kind in texts else {} for kind in operation.kinds}
    if operation.answer is not None:
        content = {Json.media_type: {"schema": ref(operation.answer)}, **content}
    responses: Schema = {"200": {"description": "It is done.", "content": content}} if operation.succeeds else {}
    error = ref("MessagesError" if anthropic.owns(path) else "Error")
    for status in sorted({*_EVERYWHERE, *operation.errors} - (set() if keys else {401})):
        schema = ref("Health") if operation is _HEALTH and status == 503 else error
        responses[str(status)] = {
            "description": _REASONS[status], "content": {Json.media_type: {"schema": schema}},
        }  # fmt: skip
    return responses
