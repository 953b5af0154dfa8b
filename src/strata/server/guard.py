"""What stands before every request: keys, foreign pages, sizes, request ids, the access log."""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strata import logs
from strata.errors import UsageError
from strata.server.error_form import REQUEST_ID, error_body
from strata.server.metrics import Metrics
from strata.server.problem import Problem
from strata.server.records import CURRENT, Trace

LOG = logs.get("access")
LEFT = 499
"""The status in log and counters of a request whose client left before it had its answer."""
_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
OPEN_PATHS = frozenset({"/health", "/api/health"})
"""What needs no key, beside the page."""


@dataclass(frozen=True)
class Access:
    """Who may use the server: `keys` (none: everybody on this machine) and, without keys, under which host names."""

    host: str = "127.0.0.1"
    keys: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises UsageError when the server would be open to other machines without a key, or a key is unusable."""
        if not self.keys and not is_loopback(self.host):
            raise UsageError(
                f"Serving at {self.host} lets other machines use this model; set a key with --api-key KEY "
                "(or STRATA_API_KEY), or serve at 127.0.0.1."
            )
        if any(not key or not key.isascii() or not key.isprintable() or " " in key for key in self.keys):
            raise UsageError("An API key must be printable ASCII without blanks, and not empty.")


def split_keys(text: str) -> tuple[str, ...]:
    """Keys from a comma-separated list."""
    return tuple(key.strip() for key in text.split(",") if key.strip())


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine alone."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Guard:
    """ASGI middleware: checks each request before the application sees it, and logs it after.

    `open_paths`: further paths that need no key, those of the page that asks for one.
    """

    def __init__(self, app: ASGIApp, access: Access, metrics: Metrics, open_paths: Collection[str] = ()) -> None:
        self.app = app
        self._metrics = metrics
        self._open_paths = OPEN_PATHS | frozenset(open_paths)
        self._access = access
        self._digests: Sequence[bytes] = [_digest(key) for key in access.keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        trace = Trace(scope["method"], scope["path"], _sane_id(headers.get("x-request-id")))
        answered = False

        async def send_with_id(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                trace.status = message["status"]
                own = MutableHeaders(scope=message)
                own["x-request-id"] = own["request-id"] = trace.id
            else:
                answered = not message.get("more_body", False)
            await send(message)

        async def receive_and_look() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not answered:
                trace.status = LEFT
            return message

        scope.setdefault("state", {})[REQUEST_ID] = trace.id
        problem = self._problem(scope["method"], scope["path"], headers)
        refusal = _refuse(scope, problem) if problem is not None else None
        token = CURRENT.set(trace)
        try:
            await (refusal or self.app)(scope, receive_and_look, send_with_id)
        finally:
            CURRENT.reset(token)
            trace.status = trace.status or LEFT
            self._metrics.close(trace)
            self._log(trace)

    def _log(self, trace: Trace) -> None:
        path = ascii(trace.path)[1:-1]
        LOG.info("%s %s %d %.0f ms %s", trace.method, path, trace.status, 1000 * trace.seconds, trace.id)

    def _problem(self, method: str, path: str, headers: Headers) -> Problem | None:
        if self._digests:
            if path in self._open_paths or self._key_is_right(headers):
                return None
            return Problem(401, "authentication_error", "invalid_api_key",
                           "A key is needed: send `Authorization: Bearer KEY` or `x-api-key: KEY`.")
        host = headers.get("host", "")
        if not self._is_own(_host_name(host)):
            return Problem(403, "permission_error", "host_not_allowed",
                           f"The host name {host!r} is not this server's; use 127.0.0.1 or localhost, or set a key.")
        origin = headers.get("origin")
        if origin is not None and method != "GET" and not self._is_own(_host_name(urlsplit(origin).netloc)):
            return Problem(403, "permission_error", "origin_not_allowed",
                           f"Pages from {origin!r} may not use this server without a key.")
        kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            return Problem(415, "invalid_request_error", "unsupported_media_type",
                           f"The body must be sent as content-type application/json, not {kind!r}.")
        return None

    def _is_own(self, name: str) -> bool:
        own = {self._access.host.strip("[]").lower(), *(host.lower() for host in self._access.allowed_hosts)}
        return bool(name) and (is_loopback(name) or name in own)

    def _key_is_right(self, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        digest = _digest(given)
        # Every key is compared, and digests all have one length: the time taken tells nothing about the keys.
        return any([hmac.compare_digest(digest, known) for known in self._digests])  # noqa: C419


def _sane_id(given: str | None) -> str | None:
    """A client's own id of its request, if it can be shown and logged as it is."""
    return given if given is not None and _ID.fullmatch(given) else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _refuse(scope: Scope, problem: Problem) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
    return JSONResponse(error_body(scope, problem), problem.status, headers)
