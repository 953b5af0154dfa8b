"""One way to log: lines on stderr with time and level; stdout belongs to the protocol and to results."""

import logging
import sys

LEVELS = ("debug", "info", "warning", "error")


def setup(level: str = "info") -> None:
    """Send the log of this process to stderr. Safe to call twice: the last level wins."""
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%H:%M:%S",
        force=True,
    )


def get(name: str) -> logging.Logger:
    """The logger of a room: `get("engine")`."""
    return logging.getLogger(f"strata.{name}")
