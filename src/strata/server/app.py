"""The HTTP application: all routes, and errors in the form of the API that was called."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response

from strata import logs
from strata.errors import StrataError
from strata.server.anthropic_routes import anthropic_routes
from strata.server.error_form import error_body
from strata.server.guard import Guard
from strata.server.model_routes import model_routes
from strata.server.openai_routes import openai_routes
from strata.server.openapi import openapi_route
from strata.server.operations import operations_routes
from strata.server.page_routes import page_files, page_routes
from strata.server.problem import Problem, describe
from strata.server.replying import Json
from strata.server.responses_routes import responses_routes
from strata.server.service import Service

LOG = logs.get("server")
_CODES = {
    404: "not_found", 405: "method_not_allowed", 408: "timeout", 413: "body_too_large", 501: "not_supported",
}  # fmt: skip


def create_app(service: Service) -> Starlette:
    """The application. Its owner starts and closes the engine. Raises UsageError for an unsafe `access`."""
    service.access.check()
    page = page_files()
    routes = [
        *model_routes(service), *openai_routes(service), *anthropic_routes(service), *responses_routes(service),
        *operations_routes(service), *page_routes(page),
    ]  # fmt: skip
    app = Starlette(
        routes=[*routes, openapi_route(routes, keys=bool(service.access.keys))],
        middleware=[
            Middleware(Guard, access=service.access, metrics=service.engine.metrics, open_paths=page.keys())
        ],
        exception_handlers={HTTPException: _http_error, StrataError: _strata_error, Exception: _unexpected_error},
    )
    # A path is right or there is nothing: the address of a redirect would be made of what the client says of itself.
    app.router.redirect_slashes = False
    return app


def _answer(request: Request, problem: Problem, headers: dict[str, str] | None = None) -> Response:
    return Json(error_body(request.scope, problem), problem.status, headers or problem.headers)


async def _strata_error(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, StrataError)
    problem = describe(failure)
    if problem.status >= 500:
        LOG.warning("%s", failure)
    return _answer(request, problem)


async def _http_error(request: Request, failure: Exception) -> Response:
    assert isinstance(failure, HTTPException)
    message = failure.detail
    if failure.status_code == 404 and message == "Not Found":
        message = f"There is nothing at {request.url.path}; /openapi.json lists what there is."
    if failure.status_code == 405:
        message = f"{request.method} is not what {request.url.path} is for."
    code = _CODES.get(failure.status_code, "invalid_request")
    kind = "not_supported_error" if failure.status_code == 501 else "invalid_request_error"
    problem = Problem(failure.status_code, kind, code, message)
    return _answer(request, problem, dict(failure.headers or {}))


async def _unexpected_error(request: Request, failure: Exception) -> Response:
    problem = Problem(500, "server_error", "bug", "The server failed on this request; its log says how.")
    return _answer(request, problem, {"Connection": "close"})  # uvicorn closes it, for the error goes on
