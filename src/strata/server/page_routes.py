"""The page people use: fixed files of the package, read once, served with headers that let them reach nothing else."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

FOLDER = Path(__file__).parent / "page"
PREFIX = "/page/"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}
# Trusted Types make the browser refuse every way to turn a text into HTML: no mistake in a script can run a reply.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=(), payment=(), usb=()",
    "cache-control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page: its bytes, content type and entity tag."""

    data: bytes
    kind: str
    tag: str


def page_files(folder: Path = FOLDER) -> Mapping[str, PageFile]:
    """All that may be served, by path: `/` and the files of the folder, those of known types only."""
    found = {PREFIX + path.name: _load(path) for path in sorted(folder.iterdir()) if path.suffix in TYPES}
    return {"/": found.pop(f"{PREFIX}index.html"), **found}


def page_routes(files: Mapping[str, PageFile]) -> list[Route]:
    """`/` and `/page/NAME`."""

    async def serve(request: Request) -> Response:
        # A look-up in what was read at the start: no path of a request is ever joined to a folder.
        file = files.get(request.scope["path"])
        if file is None:
            raise HTTPException(404)
        headers = {**HEADERS, "etag": file.tag}
        if file.tag in (tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")):
            return Response(status_code=304, headers=headers)
        return Response(file.data, headers={**headers, "content-type": file.kind})

    return [Route("/", serve), Route(f"{PREFIX}{{name:path}}", serve)]


def _load(path: Path) -> PageFile:
    data = path.read_bytes()
    return PageFile(data, TYPES[path.suffix], f'"{hashlib.sha256(data).hexdigest()[:32]}"')
