"""Weight matrices for the C++ products, and the choice of an instruction set."""

import numpy as np

from strata import formats, settings
from strata.arithmetic import Matrix
from strata.arithmetic.products import flush_scales
from strata.cpu import _native
from strata.errors import UsageError


def native_matrix(w: Matrix) -> _native.Matrix:
    """`w` as the C++ ops take it; it keeps the bytes of `w` alive."""
    row = formats.FORMATS[w.format]
    raw = np.ascontiguousarray(w.raw).reshape(-1)
    native = _native.Matrix(row.ggml_type, w.n, w.k, raw)
    if not row.is_float:
        parts = formats.unpack(w.format, w.raw, w.n, w.k)
        min_scales = None if parts.min_scales is None else flush_scales(parts.min_scales)
        native.give_integers(parts.values, flush_scales(parts.scales), parts.minimums, min_scales)
    return native


def choose_isa() -> str:
    """Select the instruction set that STRATA_ISA names and return its name; UsageError if it cannot be used here."""
    try:
        _native.select_isa(str(settings.read("STRATA_ISA")))
    except ValueError as error:
        raise UsageError(f"STRATA_ISA: {error}") from error
    return _native.selected_isa()
