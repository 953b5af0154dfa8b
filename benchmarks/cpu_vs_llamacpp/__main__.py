"""Ours against llama.cpp on the CPU: `python -m benchmarks.cpu_vs_llamacpp`.

All sides stay loaded, and one works while the others wait. The last line of stdout is a JSON object with `cases`.
"""

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.cpu_vs_llamacpp import report
from benchmarks.cpu_vs_llamacpp.cases import DRAFTED, FULL, MODELS, QUICK, WINDOW, Case, ModelFile, Texts
from benchmarks.cpu_vs_llamacpp.measure import LANE_LENGTH, LANES, SETTLE, run
from benchmarks.cpu_vs_llamacpp.traffic import Traffic
from benchmarks.machine import CACHE, Machine, conditions, describe
from benchmarks.rounds import Side, SideError

QUICK_EXPERTS = 32


def main() -> int:
    """Measure and print; the exit code is 0 also where a peer is faster."""
    options = _options()
    options.cache.mkdir(parents=True, exist_ok=True)
    machine = Machine(options.cache)
    print(f"{describe()}; {options.threads} thread(s) a side; load average {os.getloadavg()[0]:.2f}")
    sides = _sides(options)
    names = [side.name for side in sides]
    found, about = [], {}
    try:
        for side in sides:
            about[side.name] = side.ask("about")
            print(f"{side.name}: version {about[side.name]['version']}, {' '.join(about[side.name]['sets'])}")
        for model in _models(options):
            measured = _measure(model, sides, machine, options)
            found.append(measured)
            print()
            print(*report.table(measured, names), sep="\n", flush=True)
    except SideError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        for side in sides:
            side.stop()
    print(f"\nread, int8: the shares of one thread's limits that {names[0]} reaches; others: cores busy otherwise")
    print(
        json.dumps(
            {
                **conditions(),
                "threads": options.threads,
                "rounds": options.rounds,
                "sides": about,
                "cases": [case for measured in found for case in report.cases(measured, names)],
            }
        )
    )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.cpu_vs_llamacpp", description=__doc__.splitlines()[0])
    names = list(MODELS)
    parser.add_argument("--models", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--cases", nargs="+", metavar="WORD", help="only cases whose name contains one of these")
    parser.add_argument("--sides", nargs="+", choices=("ours", "wheel", "native"), help="default: all that are there")
    parser.add_argument("--peer-wheel", type=Path, default=Path(sys.executable), help="Python with the xllamacpp wheel")
    parser.add_argument(
        "--peer-native",
        type=Path,
        default=CACHE / "peers" / "llamacpp-native" / "bin" / "python",
        help="Python with xllamacpp built on this machine (benchmarks/build_peers.sh)",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few tokens, few experts, 2 rounds: does it all work?")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the random models (30 GB)")
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads start at 1")
    if options.quick:
        options.rounds = min(options.rounds, 2)
    return options


def _sides(options: argparse.Namespace) -> list[Side]:
    wanted = options.sides or ["ours", "wheel", "native"]
    if not options.sides and not options.peer_native.exists():
        print(f"no native llama.cpp at {options.peer_native}: left out (benchmarks/peers.md says how to build it)")
        wanted.remove("native")
    pythons = {"ours": Path(sys.executable), "wheel": options.peer_wheel, "native": options.peer_native}
    return [Side(name, "ours" if name == "ours" else "llamacpp", pythons[name]) for name in wanted]


def _models(options: argparse.Namespace) -> list[ModelFile]:
    models = [MODELS[name] for name in options.models]
    return [replace(m, count=QUICK_EXPERTS) if m.experts else m for m in models] if options.quick else models


def _cases(model: ModelFile, options: argparse.Namespace) -> list[Case]:
    every = [*(QUICK if options.quick else FULL), *(() if model.experts else DRAFTED)]
    if options.cases is None:
        return every
    return [case for case in every if any(word in case.name for word in options.cases)]


def _measure(model: ModelFile, sides: list[Side], machine: Machine, options: argparse.Namespace) -> report.Measured:
    path = model.make(options.cache)
    texts = Texts(path, words=not model.experts)
    traffic = Traffic.of(path)
    distinct = _distinct(path, texts, traffic, options)
    for side in sides:
        side.ask(
            "open", model=str(path), threads=options.threads, context=2304, conversations=LANES, length=LANE_LENGTH
        )
    read: list[float] = []
    peak: list[float] = []

    def limits() -> None:
        read.append(machine.read_bandwidth())
        peak.append(machine.int8_peak())

    results = run(sides, _cases(model, options), texts, options.rounds, limits)
    memory = {side.name: side.ask("memory") for side in sides}
    for side in sides:
        side.ask("close")
    return report.Measured(model.name, results, traffic, distinct, read, peak, memory)


def _distinct(path: Path, texts: Texts, traffic: Traffic, options: argparse.Namespace) -> dict[str, float]:
    """Distinct experts a layer of a step, as measured once and kept beside the models."""
    kept = options.cache / f"{path.stem}.routing.json"
    if not kept.exists():
        side = Side("routing", "routing", options.peer_wheel)
        try:
            value = side.ask(
                "distinct",
                model=str(path),
                conversations=[texts.take(SETTLE + 32, i) for i in range(LANES)],
                settle=SETTLE,
                prompt=texts.take(WINDOW, 500),
                layers=traffic.layers,
                experts=traffic.experts,
                used=traffic.used,
            )
        finally:
            side.stop()
        kept.write_text(json.dumps(value))
    return json.loads(kept.read_text())


if __name__ == "__main__":
    sys.exit(main())
