"""Weights made ready at load: which matrices are rearranged for the kernels, and which are used where they lie."""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from strata import formats, logs, settings
from strata.arithmetic import Matrix, Weights
from strata.arithmetic.weights import NgramWeights
from strata.cpu import _native
from strata.machine import available_memory

Progress = Callable[[str, int, int], None]
log = logs.get("cpu")


def parts(weights: Weights) -> list[list[Matrix]]:
    """The matrices that products read, a list for the output and for every block, in the order of the file's layers.

    The embedding (unless it is the output matrix too) and the n-gram table are not among them: their rows are gathered.
    """
    blocks: list[object] = [*weights.blocks, *([weights.mtp] if weights.mtp else [])]
    return [[weights.output, *_matrices(weights.head)], *(list(_matrices(block)) for block in blocks)]


def _matrices(value: Any) -> Iterator[Matrix]:
    if isinstance(value, Matrix):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _matrices(item)
    elif is_dataclass(value):
        for field in fields(value):
            if not (isinstance(value, NgramWeights) and field.name == "table"):
                yield from _matrices(getattr(value, field.name))


def repacked_size(w: Matrix) -> int:
    """Bytes of the matrix rearranged for the kernels; 0 where it is used as it lies."""
    return _native.repacked_bytes(formats.FORMATS[w.format].ggml_type, w.n, w.k)


def should_repack(needed: int, available: int | None) -> bool:
    """Whether `needed` bytes of weights are rearranged: as STRATA_REPACK says, or if they fit with a tenth to spare."""
    choice = settings.read("STRATA_REPACK")
    if choice != "auto":
        return bool(choice == "on")
    return available is None or needed + needed // 10 <= available


def make_ready(
    model: "_native.Model", weights: Weights, native: Callable[[Matrix], "_native.Matrix"], progress: Progress | None
) -> None:
    """Rearrange the weights of `model` if STRATA_REPACK and memory say so; progress("weights", done, total) a part."""
    todo = [[w for w in part if repacked_size(w)] for part in parts(weights)]
    needed, available = sum(repacked_size(w) for part in todo for w in part), available_memory()
    repack = should_repack(needed, available)
    log.info(
        "weights are %s: %.0f MiB rearranged, %s MiB of memory available",
        "rearranged in memory" if repack else "used where they lie in the file",
        needed / 2**20,
        "unknown" if available is None else available >> 20,
    )
    if not repack:
        todo = [[] for _ in todo]
    for done, part in enumerate(todo):
        _native.repack_all(model, [native(w) for w in part])
        if progress is not None:
            progress("weights", done + 1, len(todo))
