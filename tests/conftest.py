"""What holds for all tests."""

import logging
import signal
from collections.abc import Iterator

import pytest

# A shell that starts the tests in the background has them ignore Ctrl-C, and their children too: several send it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--schedule-minutes", type=float, default=0.0, help="try new random schedules of the engine for so long"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Random schedules that are given an hour take it."""
    minutes = float(config.getoption("--schedule-minutes"))
    for item in items:
        if minutes and "schedule_minutes" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(60 * minutes + 300))


@pytest.fixture
def schedule_minutes(request: pytest.FixtureRequest) -> float:
    """How long random schedules run; 0: the known ones, as everywhere."""
    return float(request.config.getoption("--schedule-minutes"))


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """Commands set up the log of the process on the test's stderr, which is closed with the test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
