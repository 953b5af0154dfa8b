"""What moving and parking a conversation costs: `python -m benchmarks.conversations [--models NAME] [--lengths N]`.

Caches are filled with noise, not computed. Every figure stands beside the medium's in the same round: a plain read or
write of as many bytes of a file, a copy of as many bytes of memory. The last line is a JSON object with `cases`.
"""

import argparse
import gc
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import random_gguf
from benchmarks.machine import CACHE, conditions, describe
from strata import model
from strata.cpu.pieces import whole
from strata.memory import Memory, MemoryLimits, Origin, ParkingLimits, Sizes, files

DEMO = Path(model.__file__).parents[1] / "data" / "strata-demo.gguf"
MID = replace(random_gguf.MID, experts=16, mtp=True)
BLOCK = 4 << 20
HEADER = f"{'':34s} {'median':>10s} {'best':>10s} {'GB/s':>7s} {'medium':>10s} {'GB/s':>7s}  share of the medium"


@dataclass
class Case:
    """One operation at one length: seconds of every round, and of the medium where there is one (`beside`)."""

    model: str
    tokens: int
    name: str
    bytes: int = 0
    beside: str = ""
    seconds: list[float] = field(default_factory=list)
    medium: list[float] = field(default_factory=list)

    def record(self) -> dict[str, Any]:
        """For JSON: milliseconds, gigabytes a second, and the medium's time over ours."""
        ours = statistics.median(self.seconds)
        found = {
            "model": self.model, "tokens": self.tokens, "case": self.name, "bytes": self.bytes,
            "ms": round(ours * 1e3, 4), "best_ms": round(min(self.seconds) * 1e3, 4),
        }  # fmt: skip
        if self.medium:
            medium = statistics.median(self.medium)
            share = statistics.median(m / s for m, s in zip(self.medium, self.seconds, strict=True))
            found |= {
                "beside": self.beside, "gb_s": round(self.bytes / ours / 1e9, 3), "medium_ms": round(medium * 1e3, 4),
                "medium_gb_s": round(self.bytes / medium / 1e9, 3), "share": round(share, 3),
            }  # fmt: skip
        return found

    def line(self) -> str:
        """For the table."""
        r = self.record()
        text = f"{self.tokens:>7,} {self.name:26s} {r['ms']:>7.2f} ms {r['best_ms']:>7.2f} ms"
        if not self.medium:
            return text
        medium = f"{r['medium_ms']:>7.2f} ms {r['medium_gb_s']:>7.2f}  {r['share']:.2f} {self.beside}"
        return f"{text} {r['gb_s']:>7.2f} {medium}"


class Bench:
    """One model, one length."""

    def __init__(self, name: str, loaded: model.Model, length: int, rounds: int, directory: Path) -> None:
        self.name, self.loaded, self.length, self.rounds = name, loaded, length, rounds
        self.file, self.plain = directory / "one.conversation", directory / "plain"
        self.spill = directory / "spill"
        self.origin = Origin(loaded.fingerprint, loaded.kv, loaded.computed_by, loaded.can_draft)
        self.sections = _noise(loaded, length)
        self.bytes = sum(array.nbytes for array in self.sections.values())
        self.tokens: list[int] = self.sections["tokens"].tolist()

    def run(self) -> list[Case]:
        """All cases."""
        with _quiet():
            return [*self.moves(), *self.parks(), *self.disk()]

    def memory(self, **parking: Any) -> Memory[model.LaneState]:
        """A memory with room for the conversation twice, which holds it at place 0."""
        limits = MemoryLimits(2 * self.length + 2048, parking=ParkingLimits(min_free_bytes=0, **parking))
        sizes = Sizes.of(self.loaded.spec, self.loaded.kv)
        memory: Memory[model.LaneState] = Memory(limits, sizes, self.origin, self.new)
        admission = memory.admit(self.tokens, place=0)
        admission.state.restore(self.sections)
        memory.finish(admission)
        return memory

    def new(self) -> model.LaneState:
        return self.loaded.new_state(self.loaded.can_draft)

    def prompt(self) -> list[int]:
        """What a client sends to go on: the same numbers, other objects."""
        return [int(token) for token in self.sections["tokens"]] + [1]

    def moves(self) -> list[Case]:
        """An idle conversation goes on in another lane; a copy of it does."""
        memory = self.memory()
        move, packed = self.case("move"), self.case("move, prompt an array")
        fork = self.case("fork, prompt an array", beside="copying its caches")
        for turn in range(self.rounds):
            prompt = self.prompt()
            for case, given in ((move, prompt), (packed, np.array(prompt))):
                case.seconds.append(_timed(lambda p=given, place=turn % 3: memory.finish(memory.admit(p, place=place))))
            given = np.array(prompt)
            fork.seconds.append(_timed(lambda p=given: memory.finish(memory.admit(p, keep=False))))
            fork.medium.append(self.copy())
        memory.check()
        return [move, packed, fork]

    def parks(self) -> list[Case]:
        """To RAM and back."""
        memory = self.memory(ram_bytes=1 << 40)
        out, back = (self.case(name, beside="copying its caches") for name in ("park to RAM", "back from RAM"))
        for _ in range(self.rounds):
            prompt = np.array(self.prompt())
            out.seconds.append(_timed(lambda: memory.forget(0)))
            back.seconds.append(_timed(lambda p=prompt: self.expect(memory, p)))
            for case in (out, back):
                case.medium.append(self.copy())
        memory.check()
        return [out, back]

    def disk(self) -> list[Case]:
        """To a file and back: what the writer does beside the engine, and what a request waits for."""
        state = self.new()
        state.restore(self.sections)
        out = self.case("to a file, synced", beside="a plain write, synced")
        warm = self.case("from a file in memory", beside="a plain read")
        cold = self.case("from a file on the disk", beside="a plain read")
        whole = self.case("admit from a file in memory", beside="a plain read")
        for _ in range(self.rounds):
            out.seconds.append(_timed(lambda: files.write(self.file, [state], self.origin)))
            out.medium.append(_timed(self.write_plainly))
            for case, prepare in ((warm, _keep), (cold, _drop)):
                prepare(self.file)
                case.seconds.append(_timed(lambda: files.read(self.file, self.origin, self.new)))
                prepare(self.file)
                case.medium.append(_timed(self.read_plainly))
            memory = self.memory(directory=self.spill)
            memory.forget(0)
            memory.close()  # waits for the file
            memory = Memory(
                MemoryLimits(2 * self.length + 2048, parking=ParkingLimits(min_free_bytes=0, directory=self.spill)),
                Sizes.of(self.loaded.spec, self.loaded.kv), self.origin, self.new,
            )  # fmt: skip
            prompt = np.array(self.prompt())
            whole.seconds.append(_timed(lambda m=memory, p=prompt: self.expect(m, p)))
            whole.medium.append(_timed(self.read_plainly))
            shutil.rmtree(self.spill)
        return [out, warm, cold, whole]

    def expect(self, memory: Memory[model.LaneState], prompt: Any) -> None:
        """A request that resumes from the whole conversation."""
        admission = memory.admit(prompt, place=0)
        assert admission.reused == self.length, f"{admission.reused} of {self.length} tokens came back"
        memory.finish(admission)

    def case(self, name: str, beside: str = "") -> Case:
        return Case(self.name, self.length, name, self.bytes, beside)

    def copy(self) -> float:
        """Seconds to copy the caches' bytes into memory that is there."""
        source, target = np.ones(self.bytes, np.uint8), np.ones(self.bytes, np.uint8)
        return _timed(lambda: np.copyto(target, source))

    def write_plainly(self) -> None:
        data = memoryview(bytes(BLOCK))
        with open(self.plain, "wb", buffering=0) as file:
            for at in range(0, self.bytes, BLOCK):
                file.write(data[: self.bytes - at])
            os.fsync(file.fileno())

    def read_plainly(self) -> None:
        """Into memory that is new, as a conversation's is."""
        target = memoryview(np.empty(self.file.stat().st_size, np.uint8))
        with open(self.file, "rb", buffering=0) as file:
            at = 0
            while done := file.readinto(target[at : at + BLOCK]):
                at += done


def _noise(loaded: model.Model, length: int) -> dict[str, np.ndarray]:
    """Sections of a conversation of that length with the shapes of a short one, its cache rows random."""
    rng, spec = np.random.default_rng(0), loaded.spec
    state = loaded.new_state(loaded.can_draft)
    loaded.forward([model.Segment(state, list(range(20)), 20)])
    sections = {name: whole(section) for name, section in state.sections()}
    sections["tokens"] = rng.integers(1000, loaded.vocab_size, length)
    if loaded.can_draft:
        sections["mtp.waiting"], sections["mtp.following"] = sections["mtp.waiting"][-1:], np.empty(0, np.int64)
    for name, array in sections.items():
        at, _, part = name.rpartition(".")
        if part not in ("k", "v", "index", "open"):
            continue
        rows, ratio = (length - 1, spec.ratios[spec.layers]) if at == "mtp" else (length, spec.ratios[int(at[7:])])
        count = {"index": rows // ratio if ratio else 0, "open": rows % ratio if ratio else 0}.get(part, rows)
        shape = (array.shape[0], count, array.shape[2]) if array.ndim == 3 else (count, array.shape[1])
        raw = rng.integers(0, 256, int(np.prod(shape)) * array.itemsize, np.uint8)
        sections[name] = raw.view(array.dtype).reshape(shape)
    return sections


def _timed(run: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    kept = run()
    took = time.perf_counter() - begun
    del kept  # not the time to free it
    return took


class _quiet:
    """No garbage is collected while something is measured."""

    def __enter__(self) -> None:
        gc.collect()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()


def _keep(path: Path) -> None:
    """Have the file's pages in memory."""
    with open(path, "rb", buffering=0) as file:
        while file.read(BLOCK):
            pass


def _drop(path: Path) -> None:
    """Have none of the file's pages in memory."""
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _path(name: str, cache: Path) -> Path:
    if name == "demo":
        return DEMO
    path = cache / "mid-16-experts-mtp.gguf"
    if not path.exists():
        random_gguf.write(path, "Q8_0", "Q4_K", sizes=MID)
    return path


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.conversations", description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=("demo", "mid"), default=["demo", "mid"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[1_000, 10_000, 100_000], metavar="TOKENS")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the random model and the files")
    options = parser.parse_args()
    if options.rounds < 1 or min(options.lengths) < 20:
        parser.error("--rounds starts at 1, --lengths at 20")
    options.cache.mkdir(parents=True, exist_ok=True)
    print(f"{describe()}; load average {os.getloadavg()[0]:.2f}; {options.rounds} rounds", flush=True)
    cases: list[Case] = []
    for name in options.models:
        loaded = model.load(_path(name, options.cache), threads=1)
        print(f"\n{name}, --kv {loaded.kv}\n{HEADER}")
        for length in options.lengths:
            with tempfile.TemporaryDirectory(dir=options.cache) as directory:
                found = Bench(name, loaded, length, options.rounds, Path(directory)).run()
            print(*(case.line() for case in found), sep="\n", flush=True)
            cases += found
    print(json.dumps(conditions() | {"cases": [case.record() for case in cases]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
