"""The page's files over HTTP: what is served, with which headers, and that nothing else can be reached."""

import re
from typing import Any

import httpx
import pytest


@pytest.fixture
def http(shared: Any) -> Any:
    with httpx.Client(base_url=shared.url) as client:
        yield client


def referred(text: str) -> set[str]:
    return set(re.findall(r"""(?:src|href)="(/page/[^"]+)"|(?<=from ")\./([\w.-]+\.js)""", text))


def test_the_page_and_all_that_it_refers_to(http: httpx.Client) -> None:
    page = http.get("/")
    assert (page.status_code, page.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    wanted = [a or f"/page/{b}" for a, b in referred(page.text)]
    assert wanted
    seen: set[str] = set()
    while wanted:
        path = wanted.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = http.get(path)
        assert answer.status_code == 200, path
        again = http.get(path, headers={"if-none-match": answer.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        if path.endswith(".js"):
            wanted += [a or f"/page/{b}" for a, b in referred(answer.text)]
        assert not re.search(r"""(?:src|href|from|import\(|url\()\s*=?\s*["']?https?://""", answer.text), path
    assert len(seen) > 8


@pytest.mark.parametrize(
    "path", ["/page/../app.py", "/page/%2e%2e/app.py", "/page/..%2fapp.py", "/page/", "/page//etc/passwd"]
)
def test_nothing_else_can_be_reached(http: httpx.Client, path: str) -> None:
    assert http.get(path).status_code in (404, 405)
