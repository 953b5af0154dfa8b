"""Errors in the form of the API that a path belongs to, for the application and for what stands before it."""

from collections.abc import Mapping
from typing import Any

from strata.server import anthropic, openai
from strata.server.problem import Problem

REQUEST_ID = "request_id"
"""The key of a request's id in the state of its ASGI scope."""


def request_id(scope: Mapping[str, Any]) -> str | None:
    """The id that was given to a request, if it has one."""
    found = (scope.get("state") or {}).get(REQUEST_ID)
    return found if isinstance(found, str) else None


def error_body(scope: Mapping[str, Any], problem: Problem) -> dict[str, Any]:
    """The body of an error answer to the request of this ASGI scope."""
    if anthropic.owns(scope["path"]):
        return anthropic.error(problem, request_id(scope))
    return openai.error(problem)
