"""What stands before every request: keys, foreign pages, sizes, request ids, the access log."""

import ipaddress
import logging
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strata import logs
from strata.errors import UsageError
from strata.server.cors import ANYBODYS, Cors, origin_of
from strata.server.error_form import REQUEST_ID, error_body
from strata.server.keys import Keys, is_usable
from strata.server.metrics import Metrics
from strata.server.problem import Problem
from strata.server.records import CURRENT, Trace

LOG = logs.get("access")
LEFT = 499
"""The status in log and counters of a request whose client left before it had its answer."""
HEAD_LIMIT = 64 * 2**10
"""Bytes of a request's line and headers."""
HEAD_TOO_LARGE = f"The head of the request is larger than {HEAD_LIMIT} bytes."
_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
OPEN_PATHS = frozenset({"/health", "/api/health"})
"""What needs no key, beside the page."""
POLLED = OPEN_PATHS | {"/metrics", "/status", "/v1/status", "/slots", "/props", "/version"}
"""What monitors ask every second: logged at debug level unless something is wrong."""


@dataclass(frozen=True)
class Access:
    """Who may use the server: `keys` (none: everybody on this machine) and, without keys, under which host names.

    `cors_origins`: those whose pages may use it too.
    """

    host: str = "127.0.0.1"
    keys: tuple[str, ...] = field(default=(), repr=False)
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()

    def check(self) -> None:
        """Raises UsageError when the server would be open to other machines without a key, or a key is unusable."""
        if not self.keys and not is_loopback(self.host):
            raise UsageError(
                f"Serving at {self.host} lets other machines use this model; set a key with --api-key or "
                "--api-key-file (or STRATA_API_KEY), or serve at 127.0.0.1."
            )
        if not all(is_usable(key) for key in self.keys):
            raise UsageError("An API key must be printable ASCII without blanks, and not empty.")
        for name in self.allowed_hosts:
            if not name.strip() or "/" in name or name.count(":") == 1:
                raise UsageError(f"--allowed-host {name!r} is no host name; write it without scheme and port.")
        for origin in map(origin_of, self.cors_origins):
            if origin in ANYBODYS and not self.keys:
                raise UsageError(
                    f"--cors-origin {origin} lets every web page that is opened on this machine use the model; "
                    "set a key too (--api-key-file), or name the origins."
                )


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
        self._keys = Keys(access.keys)
        self._cors = Cors(access.cors_origins)

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
                self._cors.mark(headers.get("origin"), own)
            else:
                answered = not message.get("more_body", False)
            await send(message)

        async def receive_and_look() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not answered:
                trace.status = LEFT
            return message

        scope.setdefault("state", {})[REQUEST_ID] = trace.id
        app = self._answerer(scope, headers)
        token = CURRENT.set(trace)
        try:
            await app(scope, receive_and_look, send_with_id)
        finally:
            CURRENT.reset(token)
            trace.status = trace.status or LEFT
            self._metrics.close(trace)
            self._log(trace)

    def _log(self, trace: Trace) -> None:
        path = ascii(trace.path)[1:-1]
        polled = trace.method in ("GET", "HEAD") and trace.path in POLLED and trace.status in (200, 503)
        level = logging.DEBUG if polled else logging.INFO
        LOG.log(level, "%s %s %d %.0f ms %s", trace.method, path, trace.status, 1000 * trace.seconds, trace.id)

    def _answerer(self, scope: Scope, headers: Headers) -> ASGIApp:
        """What answers a request: the application, if it may have it."""
        asks = self._cors.asks(scope["method"], headers)
        problem = self._problem(scope["method"], scope["path"], headers, asks=asks)
        if _head_size(scope) > HEAD_LIMIT:
            problem = Problem(431, "invalid_request_error", "head_too_large", HEAD_TOO_LARGE)
        if problem is not None:
            return _refuse(scope, problem)
        return self._cors.answer(headers) if asks else self.app

    def _problem(self, method: str, path: str, headers: Headers, *, asks: bool) -> Problem | None:
        origin = headers.get("origin")
        if asks and not self._cors.allows(origin):
            return Problem(403, "permission_error", "origin_not_allowed",
                           f"Pages from {origin!r} may not use this server; --cors-origin can allow them.")
        if self._keys:
            # A browser's question cannot bear a key; the request after it does.
            if asks or path in self._open_paths or self._key_is_right(headers):
                return None
            return Problem(401, "authentication_error", "invalid_api_key",
                           "A key is needed: send `Authorization: Bearer KEY` or `x-api-key: KEY`.")
        host = headers.get("host", "")
        if not self._is_own(_host_name(host)):
            return Problem(403, "permission_error", "host_not_allowed",
                           f"The host name {host!r} is not this server's: use 127.0.0.1 or allow it (--allowed-host).")
        if method != "GET" and not self._is_own_page(origin):
            return Problem(403, "permission_error", "origin_not_allowed",
                           f"Pages from {origin!r} may not use this server without a key or --cors-origin.")
        kind = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            return Problem(415, "invalid_request_error", "unsupported_media_type",
                           f"The body must be sent as content-type application/json, not {kind!r}.")
        return None

    def _is_own_page(self, origin: str | None) -> bool:
        return origin is None or self._cors.allows(origin) or self._is_own(_host_name(origin.partition("://")[2]))

    def _is_own(self, name: str) -> bool:
        own = {self._access.host.strip("[]").lower(), *(host.lower() for host in self._access.allowed_hosts)}
        return bool(name) and (is_loopback(name) or name in own)

    def _key_is_right(self, headers: Headers) -> bool:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        return self._keys.match(given)


def _sane_id(given: str | None) -> str | None:
    """A client's own id of its request, if it can be shown and logged as it is."""
    return given if given is not None and _ID.fullmatch(given) else None


def _head_size(scope: Scope) -> int:
    """Bytes of a head. A connection that gets one in a single piece takes also one that is too large."""
    headers = sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    return headers + len(scope.get("raw_path", b"")) + len(scope["query_string"])


def _host_name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _refuse(scope: Scope, problem: Problem) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
    return JSONResponse(error_body(scope, problem), problem.status, headers)
