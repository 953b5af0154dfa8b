"""What holds for all tests."""

import logging
import signal
from collections.abc import Iterator

import pytest

# A shell that starts the tests in the background has them ignore Ctrl-C, and their children too: several send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Commands set up the log of the process on the test's stderr, which is closed with the test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
