"""Pages of other origins that may use the server: what their browsers ask before, and read after, a request.

The protocol is that of https://fetch.spec.whatwg.org/#http-cors-protocol. No cookies are used, so none are allowed.
"""

import re
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

from strata.errors import UsageError

EVERY = "*"
ANYBODYS = (EVERY, "null")
"""Origins that any page can have: `null` is that of a file and of a sandboxed frame."""
METHODS = "GET, POST, DELETE"
EXPOSED = "x-request-id, request-id, retry-after"
_MAX_AGE_S = 600
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s]+")
_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(\s*,\s*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
_USUAL_PORTS = {"http": ":80", "https": ":443"}


def origin_of(text: str) -> str:
    """An origin as browsers write it. Raises UsageError."""
    origin = text.strip().lower().removesuffix("/")
    if origin in ANYBODYS:
        return origin
    if not _ORIGIN.fullmatch(origin):
        raise UsageError(f"--cors-origin {text!r} is no origin; write one as https://example.org or http://host:port.")
    return origin.removesuffix(_USUAL_PORTS.get(origin.partition(":")[0], "/"))


class Cors:
    """The origins whose pages may use the server; without any, nothing here does a thing."""

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = frozenset(origin_of(origin) for origin in origins)

    def allows(self, origin: str | None) -> bool:
        """Whether pages of this origin may use the server."""
        return origin is not None and (EVERY in self._origins or origin.lower() in self._origins)

    def asks(self, method: str, headers: Headers) -> bool:
        """Whether this is a browser's question before the request of a page."""
        return bool(self._origins) and method == "OPTIONS" and "access-control-request-method" in headers

    def answer(self, headers: Headers) -> Response:
        """The answer to that question. What a request must hold beside its origin is found out when it comes."""
        allowed = {"access-control-allow-methods": METHODS, "access-control-max-age": str(_MAX_AGE_S)}
        names = headers.get("access-control-request-headers", "")
        if len(names) <= 4096 and _NAMES.fullmatch(names):
            allowed["access-control-allow-headers"] = names
        if headers.get("access-control-request-private-network") == "true":
            allowed["access-control-allow-private-network"] = "true"
        return Response(status_code=204, headers=allowed)

    def mark(self, origin: str | None, answer: MutableHeaders) -> None:
        """Let the page of a request read the answer, if it may."""
        if not self._origins:
            return
        answer.add_vary_header("Origin")
        if origin is not None and self.allows(origin):
            answer["access-control-allow-origin"] = origin
            answer["access-control-expose-headers"] = EXPOSED
