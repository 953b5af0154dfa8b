"""`strata serve` with the demo model as a process of its own."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from strata.cli.defaults import demo_model


@contextmanager
def demo_server() -> Iterator[tuple[str, int]]:
    """Its address and process id; on leaving it is ended by a signal, and has to end well."""
    command = [sys.executable, "-m", "strata.cli", "serve", "--port", "0", "--threads", "1",
               "--model", str(demo_model()), "--context", "2048"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            url = re.search(r"http://\S+", child.stdout.readline())
            assert url is not None
            yield url.group(), child.pid
        finally:
            child.send_signal(signal.SIGINT)
            assert child.wait(30) == 0
