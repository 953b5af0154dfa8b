"""Weight matrices for the C++ products, and the choice of an instruction set."""

import mmap
from typing import Any

import numpy as np

from strata import formats, settings
from strata.arithmetic import Matrix
from strata.arithmetic.types import U8
from strata.cpu import _native
from strata.errors import UsageError


def native_matrix(w: Matrix) -> _native.Matrix:
    """`w` as the C++ ops take it, used where it lies until it is repacked; it keeps the bytes of `w` alive."""
    raw = np.ascontiguousarray(w.raw).reshape(-1)
    return _native.Matrix(formats.FORMATS[w.format].ggml_type, w.n, w.k, raw, file_map(raw))


def file_map(raw: U8) -> tuple[int, int] | None:
    """Address and size of the read-only file map that the bytes lie in: its pages can be given back and read again."""
    root: np.ndarray[Any, Any] = raw
    while isinstance(root.base, np.ndarray):
        root = root.base
    base: Any = root.base
    if root.flags.writeable or not isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap):
        return None
    return root.ctypes.data, root.nbytes


def choose_isa() -> str:
    """Select the instruction set that STRATA_ISA names and return its name; UsageError if it cannot be used here."""
    try:
        _native.select_isa(str(settings.read("STRATA_ISA")))
    except ValueError as error:
        raise UsageError(f"STRATA_ISA: {error}") from error
    return _native.selected_isa()
