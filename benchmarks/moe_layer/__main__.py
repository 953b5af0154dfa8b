"""One MoE layer's experts against other engines: `python -m benchmarks.moe_layer`.

Rows choose experts at random, a new choice a measurement. All sides stay loaded, one works at a time. The last line of
stdout is a JSON object with `cases`; its figures are layers a second.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from benchmarks.machine import CACHE, Machine, conditions, describe
from benchmarks.random_gguf import StreamedTensors
from benchmarks.rounds import Series, Side, SideError, Watch, rotated

WARM_UP = 4.0  # seconds a side and layer
PEERS = {"freetoken": "freetoken", "kt-kernel": "ktransformers"}


@dataclass(frozen=True)
class Geometry:
    """Sizes of a layer; `down` is the down projection's format where its rows do not fit that of gate and up."""

    hidden: int
    width: int
    experts: int
    used: int
    down: str | None = None


GEOMETRIES = {
    "Qwen3.6-35B": Geometry(2048, 512, 256, 8),
    "Flash-Next": Geometry(2560, 640, 512, 10, down="IQ4_NL"),
}
# Our format, and what the peers are asked for; kt-kernel has no format of ours, so its nearest in size.
METHODS = {
    "Q4_K": {"freetoken": "gguf", "kt-kernel": "AMXINT4"},
    "Q8_0": {"freetoken": "gguf", "kt-kernel": "AMXINT8"},
    "IQ3_S": {"freetoken": "gguf"},
    "IQ3_XXS": {"freetoken": "gguf"},
    "IQ2_XS": {"freetoken": "gguf"},
    "NVFP4": {"freetoken": "nvfp4"},
}


def main() -> int:
    """Measure and print."""
    options = _options()
    machine = Machine(options.cache)
    print(f"{describe()}; {options.threads} thread(s) a side; load average {os.getloadavg()[0]:.2f}")
    sides = [Side("ours", "our_layer")] if "ours" in options.sides else []
    sides += [Side(n, PEERS[n], options.peers / n / "bin/python") for n in options.sides if n in PEERS]
    cases: list[dict[str, Any]] = []
    try:
        about = {side.name: side.ask("about") for side in sides}
        for geometry in options.geometries:
            for form in options.formats:
                cases += _format(geometry, form, sides, machine, options)
    except SideError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        for side in sides:
            side.stop()
    result = {"threads": options.threads, "rounds": options.rounds, "sides": about, "cases": cases}
    print(json.dumps(conditions() | result))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.moe_layer", description=__doc__.splitlines()[0])
    every = ["ours", *PEERS]
    parser.add_argument("--peers", type=Path, default=CACHE / "peers", help="folder of build_peers.sh")
    parser.add_argument("--sides", nargs="+", choices=every, default=every)
    parser.add_argument("--geometries", nargs="+", choices=list(GEOMETRIES), default=list(GEOMETRIES))
    parser.add_argument("--formats", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 16])
    parser.add_argument("--rounds", type=int, default=20, help="measurements a case, each with another routing")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=CACHE)
    options = parser.parse_args()
    if max(options.rows) > 64 or min(options.rows) < 1:
        parser.error("--rows are 1 to 64")
    options.cache.mkdir(parents=True, exist_ok=True)
    return options


def _format(
    name: str, form: str, all_sides: list[Side], machine: Machine, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """The cases of one geometry and format; a side without the format sits them out."""
    g = GEOMETRIES[name]
    layer = _layer(name, form, options.cache)
    expert_bytes = sum(f.stat().st_size for f in Path(layer["folder"]).glob("*.bin")) / g.experts
    sides, kernels = [], {}
    for side in all_sides:
        if side.name == "ours" or side.name in METHODS[form]:
            method = METHODS[form].get(side.name, "")
            kernels[side.name] = side.ask("open", threads=options.threads, method=method, **layer)
            sides.append(side)
    for side in sides:
        _warm_up(side, g)
    print(f"\n{name}, {form}: {g.experts} experts of {expert_bytes / 1e6:.2f} MB, {g.used} a row; {kernels}")
    for rows in options.rows:
        draw = random.Random(rows)
        speed = {side.name: Series() for side in sides}
        digests: dict[str, list[float]] = {}
        read, touched = [], []
        for turn in range(-2, options.rounds):  # two to warm up
            ids = [draw.sample(range(g.experts), g.used) for _ in range(rows)]
            if turn % 5 == 0:
                read.append(machine.read_bandwidth())
            for side in rotated(sides, turn):
                watch = Watch()
                done = side.ask("run", ids=ids)
                digests[side.name] = done["digest"]
                if turn >= 0:
                    speed[side.name].values.append(1 / done["seconds"])
                    speed[side.name].others.append(watch.others(side.cpu))
            touched.append(len({e for row in ids for e in row}))
            if turn < 0 and METHODS[form].get("freetoken") == "gguf":
                _same_work(digests)
        step = statistics.mean(touched) * expert_bytes
        share = {n: s.median * step / statistics.median(read) for n, s in speed.items()}
        for n, s in speed.items():
            spread = f"±{s.spread * 50:.0f} %, others {statistics.median(s.others):.2f}"
            print(f"  {rows:>2} rows  {n:<10} {1e6 / s.median:>9.0f} us  {share[n]:>4.0%} of the bandwidth  {spread}")
        mine = speed.get("ours")
        for n, s in speed.items():
            if n != "ours":
                yield {
                    "case": f"{name}, {form}, {rows} rows, against {n} {METHODS[form][n]}",
                    "ours": round(mine.median, 2) if mine else None,
                    "peer": round(s.median, 2),
                    "ratio": round(mine.median / s.median, 3) if mine else None,
                    "bandwidth": [round(share["ours"], 3) if mine else None, round(share[n], 3)],
                }
    for side in sides:
        side.ask("close")


def _warm_up(side: Side, g: Geometry) -> None:
    """Runs with every expert for a while: a virtual machine reads memory that it was just given at half the speed."""
    order = list(range(g.experts)) * g.used
    every = [order[i : i + g.used] for i in range(0, 64 * g.used, g.used)]
    until = time.monotonic() + WARM_UP
    while time.monotonic() < until:
        side.ask("run", ids=every)


def _same_work(digests: dict[str, list[float]]) -> None:
    """SideError unless ours and FreeToken computed the same from the same weights, up to their activations' types."""
    if "ours" in digests and "freetoken" in digests:
        mine, theirs = np.array(digests["ours"]), np.array(digests["freetoken"])
        error = float(np.sqrt(((mine - theirs) ** 2).mean() / (theirs**2).mean()))
        if not error < 0.05:
            raise SideError(f"ours and freetoken differ by a relative RMS of {error:.3f}; 0.05 was expected at most")


def _layer(name: str, form: str, cache: Path) -> dict[str, Any]:
    """The layer's random weights, written once."""
    g = GEOMETRIES[name]
    fits = g.width % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[form]][0] == 0
    down = form if fits or g.down is None else g.down
    folder = cache / f"layer-{g.hidden}-{g.width}-{g.experts}-{form}-{down}"
    folder.mkdir(exist_ok=True)
    tensors = StreamedTensors(0)
    shapes = {"gate": (g.width, g.hidden, form), "up": (g.width, g.hidden, form), "down": (g.hidden, g.width, down)}
    for part, (n, k, kind) in shapes.items():
        path = folder / f"{part}.bin"
        if not path.exists():
            blocks, _ = tensors.matrix((g.experts, n, k), kind, k**-0.5)
            with path.with_suffix(".part").open("wb") as out:
                out.write(blocks.data) if isinstance(blocks, np.ndarray) else blocks.tofile(out)
            path.with_suffix(".part").rename(path)
    sizes = {"hidden": g.hidden, "width": g.width, "experts": g.experts, "used": g.used}
    return {"folder": str(folder), "format": form, "down": down, **sizes}


if __name__ == "__main__":
    sys.exit(main())
