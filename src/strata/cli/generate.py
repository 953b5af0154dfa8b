"""`strata generate`: one text continued, or one message answered; the text goes to stdout, all else to stderr."""

import argparse
import sys

from strata.cli.model import Session, sampling, set_up_logs
from strata.server.generation import Ask, Event
from strata.text import Part, Piece


def _show(event: Event) -> None:
    if isinstance(event, Piece) and event.part is Part.ANSWER:
        print(event.text, end="", flush=True)


def run(options: argparse.Namespace) -> int:
    """Generate once."""
    set_up_logs(options, "warning")
    prompt = sys.stdin.read() if options.prompt == "-" else options.prompt
    ask = Ask(
        messages=[{"role": "user", "content": prompt}] if options.chat else None,
        prompt=None if options.chat else prompt,
        sampling=sampling(options),
        max_tokens=options.max_tokens,
        stop=tuple(options.stop),
    )
    with Session(options) as session:
        session.run(ask, _show)
        print()
    return 0
