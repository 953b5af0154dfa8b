"""Damage small valid model files at random and require that opening them ends well.

    python tools/fuzz_weights.py --count 20000 --seed 1

Each case takes a GGUF (single or split) or safetensors (single or sharded) model, written by the `gguf` and
`safetensors` packages, mutates one of its files one to three times, and opens it. Allowed are a checkpoint whose spans
lie in their files without overlapping, or a WeightsError (FormatError) of one line that names a file; within one second
and with a peak of traced memory bounded by the model's size. A failing case is repeated by `--seed S --only N`.
"""

import argparse
import collections
import faulthandler
import json
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

from strata.errors import FormatError, WeightsError
from strata.formats import FORMATS
from strata.weights import Checkpoint, open_checkpoint

SECONDS = 1.0
MEMORY_FACTOR = 64
"""Traced bytes allowed per byte of the model: an empty list of JSON takes 3 bytes in the file and 64 in memory."""
MEMORY_BASE = 1 << 16

_JSON_PIECES = (b"null", b"1.5", b"1e999", b"[" * 50, b'"\\ud800"', b"{}", b"NaN", b'"../x"', b'""')

_EDGES = (
    0,
    1,
    2,
    7,
    13,
    31,
    2**7,
    2**8 - 1,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)


@dataclass(frozen=True)
class Model:
    """A valid model in memory: the name to open (in its directory) and each file's bytes."""

    label: str
    opened: str
    files: dict[str, bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.files.values()))


@dataclass
class Report:
    """What a run saw."""

    opened: int = 0
    refused: collections.Counter[str] = field(default_factory=collections.Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    peak: int = 0


def _write_gguf(path: Path, split: int) -> None:
    writer = gguf.GGUFWriter(path, "fuzz", split_max_tensors=split)
    writer.add_uint8("a.u8", 200)
    writer.add_int16("a.i16", -3)
    writer.add_uint64("a.u64", 2**60)
    writer.add_float64("a.f64", 0.5)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "ein Satz, größer als ASCII")
    writer.add_array("a.words", ["alpha", "", "γ", "delta"] * 4)
    writer.add_array("a.numbers", [1, 2, 3, -4])
    writer.add_array("a.floats", [0.5, 1.5])
    writer.add_array("a.flags", [True, False])
    writer.add_array("a.nested", [[1, 2], [3]])
    if not split:
        writer.add_custom_alignment(64)
    rng = np.random.default_rng(5)
    writer.add_tensor("norm", rng.standard_normal(33).astype(np.float32))
    writer.add_tensor("ids", np.arange(6, dtype=np.int32).reshape(2, 3))
    for name, kind, shape in (("up", "Q8_0", (3, 2, 64)), ("down", "Q4_K", (2, 256)), ("table", "BF16", (5, 3))):
        row = FORMATS[kind]
        raw = rng.integers(0, 256, (*shape[:-1], shape[-1] // row.block * row.block_bytes), dtype=np.uint8)
        writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_safetensors(directory: Path, shards: int) -> None:
    rng = np.random.default_rng(6)
    tensors: dict[str, np.ndarray] = {
        "norm": rng.standard_normal(9).astype(np.float32),
        "up": rng.standard_normal((3, 4, 2)).astype(np.float16),
        "ids": np.arange(5, dtype=np.int64),
        "none": np.zeros((0, 4), np.float32),
        "scalar": np.array(3.0),
        "größe": np.arange(7, dtype=np.int8),
    }
    (directory / "config.json").write_text(json.dumps({"model_type": "fuzz", "layers": [1, 2, {"deep": None}]}))
    if shards == 1:
        save_file(tensors, directory / "model.safetensors", metadata={"format": "np"})
        return
    weight_map: dict[str, str] = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = dict(list(tensors.items())[shard::shards])
        save_file(part, directory / name, metadata={"format": "np"})
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {"total_size": 123}, "weight_map": weight_map}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))


def valid_models() -> list[Model]:
    """The models that are mutated, each written by the format's own package."""
    models = []
    writers: tuple[tuple[str, Callable[[Path], None], str], ...] = (
        ("gguf", lambda to: _write_gguf(to / "m.gguf", 0), "m.gguf"),
        ("split gguf", lambda to: _write_gguf(to / "m.gguf", 2), "m-00001-of-00003.gguf"),
        ("safetensors", lambda to: _write_safetensors(to, 1), "model.safetensors"),
        ("sharded safetensors", lambda to: _write_safetensors(to, 2), "."),
    )
    for label, write, opened in writers:
        with tempfile.TemporaryDirectory() as directory:
            write(Path(directory))
            files = {entry.name: entry.read_bytes() for entry in sorted(Path(directory).iterdir())}
        models.append(Model(label, opened, files))
    return models


def _flip_bit(rng: random.Random, data: bytearray, reach: int) -> None:
    data[rng.randrange(reach)] ^= 1 << rng.randrange(8)


def _replace_bytes(rng: random.Random, data: bytearray, reach: int) -> None:
    start = rng.randrange(reach)
    count = min(rng.randint(1, 8), len(data) - start)
    data[start : start + count] = rng.randbytes(count)


def _truncate(rng: random.Random, data: bytearray, reach: int) -> None:
    del data[rng.randrange(rng.choice((reach, len(data)))) :]


def _insert(rng: random.Random, data: bytearray, reach: int) -> None:
    start = rng.randrange(reach)
    source = rng.randrange(reach)
    count = rng.randint(1, 64)
    data[start:start] = rng.choice((rng.randbytes(count), bytes(count), bytes(data[source : source + count])))


def _insert_length(rng: random.Random, data: bytearray, reach: int) -> None:
    start = rng.randrange(reach)
    data[start:start] = _edge(rng, data).to_bytes(8, "little")


def _delete(rng: random.Random, data: bytearray, reach: int) -> None:
    start = rng.randrange(reach)
    del data[start : start + rng.randint(1, 32)]


def _edge(rng: random.Random, data: bytearray) -> int:
    near = len(data) + rng.randint(-16, 16)
    return rng.choice((*_EDGES, max(near, 0), max(near, 0), rng.randrange(max(len(data), 1))))


def _write_integer(rng: random.Random, data: bytearray, reach: int) -> None:
    size = rng.choice((1, 2, 4, 8))
    start = rng.randrange(reach)
    data[start : start + size] = (_edge(rng, data) % 256**size).to_bytes(size, "little")


def _write_known_integer(rng: random.Random, data: bytearray, reach: int) -> None:
    """Replace eight bytes that look like a small count or length by an interesting integer."""
    starts = [match.start() for match in re.finditer(rb"(?=[^\0].?\0{6})", bytes(data[:reach]), re.S)]
    if starts:
        start = rng.choice(starts)
        data[start : start + 8] = _edge(rng, data).to_bytes(8, "little")


def _swap_counts(rng: random.Random, data: bytearray, reach: int) -> None:
    size = rng.choice((1, 4, 8))
    first, second = rng.randrange(reach), rng.randrange(reach)
    if rng.random() < 0.3 and reach > 24:
        first, second, size = 8, 16, 8
    one, two = bytes(data[first : first + size]), bytes(data[second : second + size])
    if len(one) == len(two) == size:
        data[first : first + size], data[second : second + size] = two, one


def _change_json(rng: random.Random, data: bytearray, reach: int) -> None:
    """Replace a number, string or bracket of JSON text by another piece of JSON, keeping most of the text valid."""
    tokens = [match.span() for match in re.finditer(rb'-?\d+|"[^"]*"|[\[\]{}:,]', bytes(data[8:reach]))]
    if not tokens:
        return
    texts = [bytes(data[8 + begin : 8 + end]) for begin, end in tokens]
    place = rng.randrange(len(tokens))
    old, (begin, end) = texts[place], tokens[place]
    number = str(rng.choice((_edge(rng, data), -1, 10**40))).encode()
    if rng.random() < 0.3:
        new = rng.choice((number, *_JSON_PIECES))
    elif old[:1] == b'"':
        new = rng.choice([text for text in texts if text[:1] == b'"'])
    else:
        new = number if old[-1:].isdigit() else rng.choice(texts)
    data[8 + begin : 8 + end] = new
    # In a safetensors file the header's length, the first eight bytes, mostly follows the change.
    if data[7] == 0 and rng.random() < 0.9:
        length = int.from_bytes(data[:8], "little") + len(new) - len(old)
        data[:8] = max(length, 0).to_bytes(8, "little")


MUTATIONS: Sequence[Callable[[random.Random, bytearray, int], None]] = (
    _flip_bit,
    _replace_bytes,
    _truncate,
    _insert,
    _insert_length,
    _delete,
    _write_integer,
    _write_known_integer,
    _write_known_integer,
    _swap_counts,
)


def mutate(rng: random.Random, name: str, data: bytes) -> bytes:
    """`data` of the file `name` after one to three mutations, nine of ten of them in the header."""
    result = bytearray(data)
    is_json = name.endswith((".json", ".safetensors"))
    # Both formats' headers of these models end before byte 1500; the rest is tensors.
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not result:
            break
        reach = min(len(result), 1500 if rng.random() < 0.9 else len(result))
        change = _change_json if is_json and rng.random() < 0.6 else rng.choice(MUTATIONS)
        change(rng, result, reach)
    return bytes(result)


def check_opened(checkpoint: Checkpoint) -> None:
    """What holds for every checkpoint that opens, whatever its file looked like; AssertionError if not."""
    by_file: dict[Path, list[tuple[int, int]]] = {}
    contents = {file: file.read_bytes() for file in checkpoint.files}
    for name, info in checkpoint.tensors.items():
        span = checkpoint.span(name)
        assert not span.flags.writeable
        assert span.dtype == np.uint8
        assert span.size == info.nbytes
        assert name == info.name
        assert span.tobytes() == contents[info.file][info.offset : info.offset + info.nbytes]
        if info.format in FORMATS:
            row = FORMATS[info.format]
            assert info.nbytes * row.block == prod(info.shape) * row.block_bytes
        if info.nbytes:
            by_file.setdefault(info.file, []).append((info.offset, info.offset + info.nbytes))
    for ranges in by_file.values():
        ranges.sort()
        assert all(before[1] <= after[0] for before, after in zip(ranges, ranges[1:], strict=False))


def _kind_of_message(text: str) -> str:
    """The message without names and numbers: its kind."""
    text = text.rsplit("/", 1)[-1].split(": ", 1)[-1]
    text = re.sub(r"(key|tensor|tensors) (?!\d* of)\S* ", r"\1 ... ", text)
    text = re.sub(r"(described by|dtype|data_offsets|shape|expected|begin with) .*", r"\1 ...", text)
    return re.sub(r"\d+", "N", text)[:70]


def run_case(model: Model, directory: Path, seed: int, case: int, report: Report) -> None:
    """One mutated copy of `model` in `directory`, opened and judged; what is wrong goes to `report.failures`."""
    rng = random.Random(f"{seed}:{case}")
    victim = rng.choice(sorted(model.files))
    data = mutate(rng, victim, model.files[victim])
    (directory / victim).write_bytes(data)
    limit = MEMORY_BASE + MEMORY_FACTOR * (model.size + len(data))
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    started = time.perf_counter()
    wrong = ""
    try:
        with open_checkpoint(directory / model.opened) as checkpoint:
            took = time.perf_counter() - started
            peak = tracemalloc.get_traced_memory()[1] - before
            check_opened(checkpoint)
        report.opened += 1
    except (WeightsError, FormatError) as error:
        took = time.perf_counter() - started
        peak = tracemalloc.get_traced_memory()[1] - before
        text = str(error)
        report.refused[_kind_of_message(text)] += 1
        if "\n" in text or not text.isprintable() or str(directory) not in text or len(text) > 1000:
            wrong = f"the message is not one printable line that names a file: {text!r}"
    except Exception:  # any other exception is what this program looks for
        took, peak = 0.0, 0
        wrong = traceback.format_exc()
    finally:
        (directory / victim).write_bytes(model.files[victim])
    report.slowest = max(report.slowest, took)
    report.peak = max(report.peak, peak)
    if took > SECONDS:
        wrong = f"took {took:.2f} s, more than {SECONDS} s"
    if peak > limit:
        wrong = f"took {peak} bytes, more than {limit}"
    if wrong:
        report.failures.append(f"case {case} ({model.label}, {victim}; --seed {seed} --only {case}): {wrong}")


def fuzz(count: int, seed: int, only: int | None = None, watchdog: bool = False) -> Report:
    """Run `count` cases, or the case `only`; `watchdog` ends the process with a traceback if one case hangs."""
    models = valid_models()
    report = Report()
    root = Path(tempfile.mkdtemp(prefix="fuzz-weights-"))
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        for number, model in enumerate(models):
            (root / str(number)).mkdir()
            for name, data in model.files.items():
                (root / str(number) / name).write_bytes(data)
            with open_checkpoint(root / str(number) / model.opened) as checkpoint:
                check_opened(checkpoint)
        for case in [only] if only is not None else range(count):
            if watchdog:
                faulthandler.dump_traceback_later(30, exit=True)
            number = case % len(models)
            run_case(models[number], root / str(number), seed, case, report)
    finally:
        if watchdog:
            faulthandler.cancel_dump_traceback_later()
        if not tracing:
            tracemalloc.stop()
        shutil.rmtree(root, ignore_errors=True)
    return report


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code is 1 if a case failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--count", type=int, default=20_000, help="cases to run (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="cases are a function of the seed and their number")
    parser.add_argument("--only", type=int, help="run this one case of the seed")
    parser.add_argument("--kinds", action="store_true", help="also list how often each kind of error was seen")
    options = parser.parse_args(arguments)
    report = fuzz(options.count, options.seed, options.only, watchdog=True)
    for failure in report.failures[:20]:
        print(failure, file=sys.stderr)
    if options.kinds:
        for kind, times in report.refused.most_common():
            print(f"{times:7d}  {kind}")
    print(
        f"{report.opened + report.refused.total()} cases ended well: {report.opened} opened, "
        f"{report.refused.total()} refused in {len(report.refused)} ways; {len(report.failures)} failed; "
        f"slowest {report.slowest * 1000:.1f} ms, peak {report.peak / 1024:.0f} KiB"
    )
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
