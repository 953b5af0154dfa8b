"""What a connection leaves behind when it has ended."""

import gc
import time
from typing import Any

import httpx

from strata.server.connection import Connection


def test_ended_connections_are_not_kept(shared: Any) -> None:
    """Twenty seconds of a thousand connections a second would be memory for twenty thousand."""
    for _ in range(30):
        assert httpx.get(f"{shared.url}/health", headers={"connection": "close"}).status_code in (200, 503)
    deadline = time.monotonic() + 5
    while kept := [each for each in gc.get_objects() if type(each) is Connection]:
        assert time.monotonic() < deadline, f"{len(kept)} connections are kept"
        del kept
        gc.collect()
        time.sleep(0.05)
