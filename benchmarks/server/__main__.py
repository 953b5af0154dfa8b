"""The HTTP server on the demo model: `python -m benchmarks.server`.

What it costs over the engine's own protocol, 200 clients at once, its idle load, malformed requests, killed engines.
The last line of stdout is a JSON object with `cases`; a ratio above 1 is always in favour of what is measured.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cpu_vs_llamacpp.cases import DEMO
from benchmarks.machine import conditions, describe
from benchmarks.rounds import SideError
from benchmarks.server import crowd, idle, killing, malformed, overhead


@dataclass(frozen=True)
class Group:
    """Cases that are measured together."""

    name: str
    measure: Callable[[argparse.Namespace], Iterator[dict[str, Any]]]


GROUPS = (
    Group("overhead", overhead.measure),
    Group("crowd", crowd.measure),
    Group("idle", idle.measure),
    Group("malformed", malformed.measure),
    Group("killing", killing.measure),
)


def main() -> int:
    """Measure and print; the exit code is 0 whatever the ratios are, 1 when something could not be measured."""
    options = _options()
    print(f"{describe()}; {options.threads} thread(s); load average {os.getloadavg()[0]:.2f}", flush=True)
    found: list[dict[str, Any]] = []
    try:
        for group in GROUPS:
            if options.cases is None or group.name in options.cases:
                print(f"{group.name} ...", file=sys.stderr, flush=True)
                for case in group.measure(options):
                    print(_line(case), flush=True)
                    found.append(case)
    except SideError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps({**conditions(), "threads": options.threads, "rounds": options.rounds, "cases": found}))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.server", description=__doc__.splitlines()[0])
    names = [group.name for group in GROUPS]
    parser.add_argument("--cases", nargs="+", choices=names, metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--model", type=Path, default=DEMO, help="model file (default: the demo model)")
    parser.add_argument("--rounds", type=int, default=7, help="of the overhead, after one that warms up")
    parser.add_argument("--threads", type=int, default=1, help="of the engine")
    parser.add_argument("--streams", type=int, default=8, help="of the overhead")
    parser.add_argument("--clients", type=int, default=200, help="at once")
    parser.add_argument("--malformed", type=int, default=10_000, metavar="N", help="malformed requests")
    parser.add_argument("--kills", type=int, default=20, metavar="N", help="times that the engine is killed")
    parser.add_argument("--idle", type=float, default=20.0, metavar="S", help="seconds of doing nothing")
    parser.add_argument("--tokens", type=int, default=256, help="of a reply")
    parser.add_argument("--quiet", type=float, default=20.0, metavar="S", help="wait so long for a quiet round")
    # A malformed request that promises more than it has is waited for by the server as well.
    parser.add_argument("--patience", type=float, default=4.0, metavar="S", help="with a malformed request")
    parser.add_argument("--profile", type=Path, metavar="FILE", help="cProfile of the overhead's server goes here")
    parser.add_argument("--seed", type=int, default=6, help="of the malformed requests")
    parser.add_argument("--quick", action="store_true", help="a little of everything: does it all work?")
    options = parser.parse_args()
    if min(options.rounds, options.threads, options.streams, options.clients, options.malformed, options.kills) < 1:
        parser.error("all counts start at 1")
    if options.quick:
        options.rounds, options.tokens, options.clients, options.malformed = 1, 12, 20, 120
        options.kills, options.idle, options.quiet, options.patience = 2, 2.0, 0.0, 1.0
    return options


def _line(case: dict[str, Any]) -> str:
    more = {k: v for k, v in case.items() if k not in ("case", "value", "baseline", "ratio", "unit")}
    told = ", ".join(f"{key} {value}" for key, value in more.items())
    return (
        f"{case['case']:<58}{case['value']:>10.4g}{case['baseline']:>10.4g}  {case['unit']:<9}{case['ratio']:>7.3f}x"
        f"  {told}"
    )


if __name__ == "__main__":
    sys.exit(main())
