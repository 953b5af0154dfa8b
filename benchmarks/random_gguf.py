"""Large qwen4_exp GGUF files with random weights, for measuring speed: `python -m benchmarks.random_gguf OUT.gguf`.

The small files of the model oracles, at published widths and written as a stream: a matrix is cut from a pool of
random blocks of its format, so that memory stays small. Text is noise; the speed is that of the real format.
"""

import argparse
import sys
from pathlib import Path
from typing import BinaryIO

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "oracles"))
import oracle_gguf
from oracle_gguf import Geometry

POOL = 32 << 20  # bytes of distinct blocks a format and scale
CHUNK = 4 << 20

# The widths of Qwen3.8-Flash-Next; few layers, a small vocabulary and a small n-gram table.
MID = Geometry(
    layers=4,
    hidden=2560,
    vocab=8192,
    heads=24,
    kv_heads=2,
    head_dim=256,
    rope_dim=64,
    key_heads=16,
    value_heads=48,
    state=128,
    experts=512,
    used=10,
    width=640,
    shared_width=640,
    rank=320,
    index_heads=4,
    index_dim=128,
    budget=2048,
    ngram_heads=8,
    ngram_rows=4096,
    mtp=False,
)
TINY = Geometry(mtp=False)
PRESETS = {"mid": MID, "tiny": TINY}


class Blocks:
    """A matrix of quantized blocks that exists only while it is written: what `GGUFWriter` asks of an array."""

    dtype = np.dtype(np.uint8)

    def __init__(self, pool: np.ndarray, shape: tuple[int, ...], rng: np.random.Generator) -> None:
        self.shape, self.nbytes = shape, int(np.prod(shape))
        self._pool, self._rng = pool, rng

    def tofile(self, out: BinaryIO) -> None:
        """Write the bytes: pieces of the pool that start at random blocks."""
        left, (blocks, size) = self.nbytes, self._pool.shape
        piece = min(blocks, max(1, CHUNK // size))
        while left:
            start = int(self._rng.integers(0, blocks - piece + 1))
            part = self._pool[start : start + piece].reshape(-1)[:left]
            out.write(part.data)
            left -= len(part)


class StreamedTensors(oracle_gguf.RandomTensors):
    """Random matrices, the quantized ones as `Blocks`."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._pools: dict[tuple[str, float], np.ndarray] = {}

    def matrix(self, shape: tuple[int, ...], name: str, std: float) -> tuple[np.ndarray, gguf.GGMLQuantizationType]:
        """As the base class; large quantized matrices repeat the blocks of a pool."""
        kind = gguf.GGMLQuantizationType[name]
        if name in oracle_gguf.FLOATS:
            return super().matrix(shape, name, std)
        block, size = gguf.GGML_QUANT_SIZES[kind]
        if int(np.prod(shape)) // block * size <= CHUNK:
            return super().matrix(shape, name, std)
        if (name, std) not in self._pools:
            self._pools = {k: v for k, v in self._pools.items() if k[0] == name}  # formats come in runs
            self._pools[name, std] = super().matrix((POOL // size, block), name, std)[0]
        rows = (*shape[:-1], shape[-1] // block * size)
        return Blocks(self._pools[name, std], rows, self.rng), kind  # type: ignore[return-value]


class _LargeFile(oracle_gguf.GgufWriter):
    def __init__(self, path: Path, dense: str, experts: str, down: str, sizes: Geometry, seed: int) -> None:
        super().__init__(path, dense, experts, down, sizes, seed)
        self.random = StreamedTensors(seed)


def write(path: Path, dense: str, experts: str, *, down: str | None = None, sizes: Geometry, seed: int = 0) -> None:
    """Write a model as `oracle_gguf.write` does; a file is complete when it has its name."""
    part = path.with_name(path.name + ".part")
    _LargeFile(part, dense, experts, down or experts, sizes, seed).write()
    part.rename(path)


def main() -> int:
    """Write one file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", choices=PRESETS, default="mid")
    parser.add_argument("--dense", default="Q8_0", choices=oracle_gguf.FORMATS, help="format of all but the experts")
    parser.add_argument("--experts", default="Q4_K", choices=oracle_gguf.FORMATS)
    parser.add_argument("--down", choices=oracle_gguf.FORMATS, help="of the experts' down projection")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--count", type=int, help="experts a layer")
    parser.add_argument("--mtp", action="store_true", help="with a multi-token-prediction block")
    a = parser.parse_args()
    changed = {"layers": a.layers, "experts": a.count, "mtp": a.mtp or None}
    sizes = Geometry(**(vars(PRESETS[a.preset]) | {k: v for k, v in changed.items() if v is not None}))
    write(a.out, a.dense, a.experts, down=a.down, sizes=sizes)
    print(f"{a.out}: {a.out.stat().st_size / 2**30:.2f} GiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
