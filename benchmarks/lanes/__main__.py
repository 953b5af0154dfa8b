"""Many conversations at once on the real engine: `python -m benchmarks.lanes`.

All processes stay loaded, and one works while the others wait. The first round warms up and is reported apart (`cold`).
The last line of stdout is a JSON object with `cases`; a ratio above 1 is always in favour of what is measured.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from benchmarks.cpu_vs_llamacpp.cases import MODELS, ModelFile
from benchmarks.lanes.drafting import Drafts
from benchmarks.lanes.growth import InARow
from benchmarks.lanes.latency import Behind, FollowUp
from benchmarks.lanes.sides import DEMO, MID, QUICK, Sides
from benchmarks.lanes.throughput import Alone, Together
from benchmarks.machine import CACHE, conditions, describe
from benchmarks.rounds import SideError

COUNTS = (1, 2, 4, 8, 16)
QUICK_COUNTS = (1, 4)
QUICK_EXPERTS = 32


class Group(Protocol):
    """Cases that are measured together, a round at a time."""

    name: str

    def measure(self, turn: int) -> None:
        """Round `turn`; round 0 warms up."""

    def cases(self, model: str) -> Iterator[dict[str, Any]]:
        """What was found."""


def main() -> int:
    """Measure and print; the exit code is 0 whatever the ratios are."""
    options = _options()
    options.cache.mkdir(parents=True, exist_ok=True)
    print(f"{describe()}; {options.threads} thread(s) a side; load average {os.getloadavg()[0]:.2f}", flush=True)
    print(f"llama.cpp: {options.peer if options.peer else 'left out'}")
    found: list[dict[str, Any]] = []
    try:
        for name in options.models:
            cases = _measure(MODELS[name], options)
            print(*_table(cases), sep="\n", flush=True)
            found += cases
    except SideError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(
        json.dumps(
            {
                **conditions(),
                "threads": options.threads,
                "rounds": options.rounds,
                "cases": found,
            }
        )
    )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.lanes", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--models",
        nargs="+",
        choices=list(MODELS),
        default=["demo", "IQ2_XS"],
        metavar="NAME",
        help=f"the demo, or the format of a random `mid`: {', '.join(MODELS)} (default: demo IQ2_XS)",
    )
    parser.add_argument("--cases", nargs="+", metavar="WORD", help="only cases whose name contains one of these")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds, after one that warms up")
    parser.add_argument("--threads", type=int, default=1, help="of every side")
    parser.add_argument("--new", type=int, help="tokens that a conversation generates (default: 128, mid 64)")
    native = CACHE / "peers" / "llamacpp-native" / "bin" / "python"
    parser.add_argument(
        "--peer",
        type=Path,
        default=native if native.exists() else Path(sys.executable),
        help="Python with xllamacpp (default: the one built on this machine, else this one)",
    )
    parser.add_argument("--no-peer", dest="peer", action="store_const", const=None, help="leave llama.cpp out")
    parser.add_argument("--quick", action="store_true", help="few tokens, one round: does it all work?")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the random models")
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1 or (options.new is not None and options.new < 2):
        parser.error("--rounds and --threads start at 1, --new at 2")
    if options.quick:
        options.rounds = 1
    return options


def _measure(model: ModelFile, options: argparse.Namespace) -> list[dict[str, Any]]:
    if options.quick and model.experts:
        model = replace(model, count=QUICK_EXPERTS)
    path = model.make(options.cache)
    sizes = QUICK if options.quick else MID if model.experts else DEMO
    if options.new is not None:
        sizes = replace(sizes, new=options.new)
    name = f"mid {model.name}" if model.experts else model.name
    words = not model.experts
    sides = Sides(path, words=words, sizes=sizes, threads=options.threads, most=COUNTS[-1], peer=options.peer)
    try:
        groups = _groups(sides, model, options)
        for turn in range(options.rounds + 1):
            print(f"{name}: round {turn} of {options.rounds}", file=sys.stderr, flush=True)
            for group in groups:
                group.measure(turn)
        return [case for group in groups for case in group.cases(name)]
    finally:
        sides.close()


def _groups(sides: Sides, model: ModelFile, options: argparse.Namespace) -> list[Group]:
    groups: list[Group] = [Together(sides, count) for count in (QUICK_COUNTS if options.quick else COUNTS)]
    groups += [Alone(sides), Behind(sides), FollowUp(sides)]
    if not model.experts:  # a random model drafts at random, and its row of conversations shows nothing else
        groups += [Drafts(sides), InARow(sides)]
    if options.cases is None:
        return groups
    return [group for group in groups if any(word in group.name for word in options.cases)]


def _table(cases: list[dict[str, Any]]) -> Iterator[str]:
    """A case a line: value, baseline, ratio, spread of both, llama.cpp, and cores busy with other work."""
    head = f"\n{'case':<62}{'value':>9}{'baseline':>10}  {'unit':<9}"
    yield head + f"{'ratio':>7}{'spread':>14}{'llama.cpp':>11}{'others':>8}"
    for c in cases:
        spread = " ".join(f"±{x * 50:.0f} %" for x in c.get("spread", []))
        peer = "-" if c.get("llamacpp") is None else f"{c['llamacpp']:.4g}"
        others = f"{c['others']:.2f}" if "others" in c else "-"
        yield (
            f"{c['case']:<62}{c['value']:>9.4g}{c['baseline']:>10.4g}  {c['unit']:<9}{c['ratio']:>6.2f}x"
            f"{spread:>14}{peer:>11}{others:>8}"
        )


if __name__ == "__main__":
    sys.exit(main())
