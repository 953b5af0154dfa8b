"""A side's half of the talk: a JSON request a line on stdin, a JSON reply a line on stdout; in between it waits."""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


def serve(operations: dict[str, Callable[..., Any]]) -> None:
    """Answer requests `{"op": name, **arguments}` until stdin ends.

    A reply is `{"value": what the operation returned, "cpu": CPU seconds of this process}` or `{"error": ...}`.
    What an engine prints on stdout goes to stderr.
    """
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        before = time.process_time()
        try:
            reply = {"value": operations[request.pop("op")](**request), "cpu": time.process_time() - before}
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(reply) + "\n")


def timed(action: Callable[[], Any]) -> float:
    """Seconds that `action` takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def memory() -> dict[str, int]:
    """Bytes of this process: private (`anonymous`) and mapped from files, both resident."""
    found = {}
    with open("/proc/self/status", encoding="ascii") as status:
        for line in status:
            if line.startswith(("RssAnon", "RssFile")):
                found["anonymous" if line.startswith("RssAnon") else "files"] = int(line.split()[1]) * 1024
    return found
