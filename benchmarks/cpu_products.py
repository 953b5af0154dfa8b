"""Products of one thread: GB/s of weights and GMAC/s per format and row count, beside the bounds of the same run.

    python benchmarks/cpu_products.py [--formats Q4_K,Q8_0] [--rows 1,8,512] [--raw] [--rounds 5]
"""

import argparse
import os
import time

import numpy as np

from strata import formats
from strata.cpu import _native

K = 2048
MEMORY = 192 << 20  # bytes of weights where few rows read them: far more than the caches
REUSED = 4 << 20  # bytes of weights where many rows bound the work by arithmetic


def best(run, seconds=0.4, least=3):
    """The shortest time of repeated runs, of this thread alone: other work on the machine can only add to it."""
    times, until = [], time.perf_counter() + seconds
    while len(times) < least or time.perf_counter() < until:
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return min(times)


def bounds():
    """(GB/s of a plain read of memory, GMAC/s of dots in registers)."""
    memory = np.ones(MEMORY, np.uint8)
    steps = 2_000_000
    read = memory.size / best(lambda: _native.read_memory(memory)) / 1e9
    peak = steps * 12 * 64 / best(lambda: _native.dot_registers(steps)) / 1e9
    return read, peak


def random_weights(name, n):
    """Bytes of the file's size; their values do not matter to the time, but scales are kept finite."""
    row = formats.FORMATS[name]
    raw = np.random.default_rng(0).integers(0, 60, row.row_bytes(K) * 16, dtype=np.uint8)
    return np.tile(raw, n // 16)


def measure(name, rows, raw):
    """(GB/s of the file's bytes, GMAC/s) for one format and row count."""
    row = formats.FORMATS[name]
    n = max(16, (MEMORY if rows <= 8 else REUSED) // row.row_bytes(K) // 16 * 16)
    w = _native.Matrix(row.ggml_type, n, K, random_weights(name, n))
    if not raw:
        w.repack()
    x = np.random.default_rng(1).standard_normal((rows, K)).astype(np.float32)
    y = np.empty((rows, n), np.float32)
    taken = best(lambda: _native.product(w, x, y))
    return n * row.row_bytes(K) / taken / 1e9, n * K * rows / taken / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--formats", default=",".join(formats.FORMATS))
    parser.add_argument("--rows", default="1,2,4,8,64,512")
    parser.add_argument("--raw", action="store_true", help="use the file's bytes where they lie")
    parser.add_argument("--isa", default="auto")
    args = parser.parse_args()
    _native.select_isa(args.isa)
    read, peak = bounds()
    load = os.getloadavg()[0]
    print(f"{_native.selected_isa()}, one thread, K {K}; read {read:.1f} GB/s, peak {peak:.0f} GMAC/s, load {load:.1f}")
    print(f"{'format':8} {'rows':>4} {'GB/s':>7} {'of read':>7} {'GMAC/s':>8} {'of peak':>7}")
    for name in args.formats.split(","):
        for rows in map(int, args.rows.split(",")):
            speed, macs = measure(name, rows, args.raw)
            print(f"{name:8} {rows:4} {speed:7.2f} {speed / read:7.0%} {macs:8.1f} {macs / peak:7.0%}", flush=True)


if __name__ == "__main__":
    main()
