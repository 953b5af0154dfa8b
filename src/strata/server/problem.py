"""What went wrong with a request, for every API alike: each formats it in its own way."""

from dataclasses import dataclass

from strata.errors import RequestError, StrataError
from strata.server.failures import EngineDied, EngineRefused, EngineStalled, EngineUnavailable, TooManyWaiting
from strata.server.generation import ContextError
from strata.server.sampling import ValueRangeError


class FieldError(RequestError):
    """A request field that is wrong or asks for what is not implemented; `param` names it."""

    def __init__(self, message: str, param: str | None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


@dataclass(frozen=True, slots=True)
class Problem:
    """`status` is HTTP's, `kind` and `code` are words for programs, `message` is one sentence for people."""

    status: int
    kind: str
    code: str
    message: str
    param: str | None = None
    retry_after_s: int | None = None
    tokens: int | None = None
    """Of a prompt that is too long, beside the `most` that it may have."""
    most: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}


def describe(failure: StrataError) -> Problem:
    """The problem that an error is."""
    message, invalid = str(failure), "invalid_request_error"
    match failure:
        case ContextError():
            sizes = {"tokens": failure.tokens, "most": failure.most}
            return Problem(400, invalid, "context_length_exceeded", message, "messages", **sizes)
        case FieldError():
            return Problem(400, invalid, failure.code or "invalid_value", message, failure.param)
        case ValueRangeError():
            return Problem(400, invalid, "invalid_value", message, failure.name)
        case RequestError():
            return Problem(400, invalid, "invalid_value", message)
        case EngineRefused() if failure.about_request:
            return Problem(400, invalid, failure.code, message)
        case TooManyWaiting():
            return Problem(429, "rate_limit_error", failure.code, message, None, failure.retry_after_s)
        case EngineUnavailable() | EngineDied() | EngineStalled():
            return Problem(503, "engine_error", failure.code, message, None, failure.retry_after_s)
        case EngineRefused():
            status = 503 if failure.code == "kv_pool_full" else 500
            return Problem(status, "engine_error", failure.code, message, None, failure.retry_after_s)
    return Problem(500, "server_error", "internal_error", message)
