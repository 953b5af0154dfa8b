"""The ops in C++ under the names of `strata.arithmetic`, with its bits."""

import weakref

import numpy as np

from strata.arithmetic import Matrix, Ops, Rows
from strata.arithmetic.types import F32
from strata.cpu import _native
from strata.cpu.experts import ExpertLayer, expert_layer
from strata.cpu.products import choose_isa, native_matrix

__all__ = ["ExpertLayer", "expert_layer", "gated_delta_rule", "ops", "product"]

_repacked: "weakref.WeakKeyDictionary[Matrix, _native.Matrix]" = weakref.WeakKeyDictionary()


def ops() -> Ops:
    """The ops of this room, for `strata.arithmetic.Reference`; UsageError if STRATA_ISA cannot be used here."""
    choose_isa()
    return Ops(product=product, gated_delta_rule=gated_delta_rule)


def product(rows: Rows, w: Matrix) -> F32:
    """Rows (R, K) times W (N, K) of any format: fp32 (R, N). A quantized W is repacked on first use and kept."""
    native = _repacked.get(w)
    if native is None:
        native = _repacked[w] = native_matrix(w)
        native.repack()
    y = new_output((len(rows.x), w.n))
    _native.product(native, np.ascontiguousarray(rows.x), y)
    return y


def new_output(shape: tuple[int, ...]) -> F32:
    """Memory for an op to fill; tests hand out NaN here, so that an element left out shows."""
    return np.empty(shape, np.float32)


def gated_delta_rule(state: F32, q: F32, k: F32, v: F32, decay: F32, beta: F32) -> tuple[F32, F32]:
    """The gated delta rule: o (T, H, Dv) and the new state (H, Dk, Dv); `state` itself is left as it is."""
    after, out = new_output(state.shape), new_output(v.shape)
    for head in range(len(state)):
        qh, kh, vh, dh, bh = (np.ascontiguousarray(x[:, head]) for x in (q, k, v, decay, beta))
        y = new_output(vh.shape)
        _native.delta_rule(np.ascontiguousarray(state[head]), after[head], qh, kh, vh, dh, bh, 0, 0, y)
        out[:, head] = y
    return out, after
