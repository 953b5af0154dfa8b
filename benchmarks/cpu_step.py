"""Where a step's time goes on the CPU: `python -m benchmarks.cpu_step MODEL [--prompt N] [--lanes N] [--threads N]`.

Reads a prompt, then decodes greedily. Prints, for prompt and decode apart, the milliseconds of every kind of op inside
the native call, what the call spends beside them, and what Python adds.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from strata import model
from strata.cpu import _native


def main() -> None:
    """Load, read a prompt, decode, print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--prompt", type=int, default=256)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--lanes", type=int, default=1)
    parser.add_argument("--drafts", type=int, default=0, help="tokens drafted a step, all rejected")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3, help="decode is measured so often; the fastest counts")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    begun = time.perf_counter()
    loaded = model.load(options.model, threads=options.threads)
    ready = time.perf_counter() - begun
    native = loaded._path.native
    tokens = np.random.default_rng(0).integers(0, loaded.vocab_size, (options.lanes, options.prompt)).tolist()
    states = [loaded.new_state(drafts=options.drafts > 0) for _ in range(options.lanes)]
    latest: list[int] = []

    def read() -> None:
        segments = [model.Segment(s, t, len(t) - 1) for s, t in zip(states, tokens, strict=True)]
        latest[:] = loaded.forward(segments).argmax(axis=1).tolist()

    def decode() -> None:
        for _ in range(options.steps):
            step()

    def step() -> None:
        if options.drafts:
            drafted = loaded.draft(states, latest, options.drafts).tolist()
            segments = [
                model.Segment(s, [t, *d], 0, len(d)) for s, t, d in zip(states, latest, drafted, strict=True)
            ]
            logits = loaded.forward(segments)[:: options.drafts + 1]
            for state in states:
                state.accept(0)
        else:
            logits = loaded.forward([model.Segment(s, [t], 0) for s, t in zip(states, latest, strict=True)])
        latest[:] = logits.argmax(axis=1).tolist()

    rows = options.lanes * options.prompt
    tables = {"prompt": _measured(native, read, rows)}
    rounds = [_measured(native, decode, options.steps) for _ in range(options.rounds)]
    tables["decode"] = min(rounds, key=lambda table: table["wall_ms"])
    facts = {
        "model": os.path.basename(options.model), "isa": _native.selected_isa(), "threads": loaded.threads,
        "load_s": round(ready, 2), "resident_mib": round(_resident_mib()), "lanes": options.lanes,
        "prompt_tokens_s": round(1000 / tables["prompt"]["wall_ms"], 1),
        "decode_tokens_s": round(options.lanes / tables["decode"]["wall_ms"] * 1000, 1),
    }  # fmt: skip
    if options.json:
        print(json.dumps({**facts, **tables}))
        return
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    for name, table in tables.items():
        _show(f"{name}, ms a {'token' if name == 'prompt' else 'step'}", table)


def _measured(native: Any, run: Callable[[], None], units: int) -> dict[str, Any]:
    """Run it with the profile on; milliseconds a unit of every op, of the native call, and of the wall."""
    native.start_profile(True)
    begun = time.perf_counter()
    run()
    wall = time.perf_counter() - begun
    profile = native.profile()
    native.start_profile(False)
    ops = {name: ns / 1e6 / units for name, ns in profile["ops"].items() if ns}
    products = {name: ns / 1e6 / units for name, ns in profile["products"].items() if ns}
    native_ms = profile["total"] / 1e6 / units
    return {"ops": ops, "products": products, "native_ms": native_ms, "wall_ms": wall * 1000 / units}


def _show(title: str, table: dict[str, Any]) -> None:
    wall = table["wall_ms"]
    print(f"\n{title:38s}  of which products")
    lines = sorted(table["ops"].items(), key=lambda item: -item[1])
    lines.append(("between ops", table["native_ms"] - sum(table["ops"].values())))
    lines.append(("Python", wall - table["native_ms"]))
    for name, ms in lines:
        print(f"  {name:20s} {ms:9.4f}  {100 * ms / wall:5.1f} %  {table['products'].get(name, 0.0):9.4f}")
    inside = sum(table["products"].values())
    print(f"  {'all':20s} {wall:9.4f}  {100 - 100 * inside / wall:5.1f} % are no products")


def _resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


if __name__ == "__main__":
    main()
