"""The routed experts of one layer on their own: for programs that bring their own router, and for benchmarks."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from strata.arithmetic import Matrix
from strata.arithmetic.types import F32
from strata.cpu import _native
from strata.cpu.loading import repacked_size, should_repack
from strata.cpu.products import choose_isa, native_matrix
from strata.errors import UsageError
from strata.machine import available_memory


class ExpertLayer:
    """Experts ready to run: call it with x fp32 (R, D), ids (R, k) and weights fp32 (R, k); it gives fp32 (R, D).

    A row is the sum of weight * down(silu(gate x) * up x) over its experts in the order of ids, from +0: section 12 of
    docs/arithmetic.md. Rows that share an expert read its weights once. Raises UsageError for what does not fit.
    """

    def __init__(self, experts: Sequence[tuple[Matrix, Matrix, Matrix]], threads: int) -> None:
        choose_isa()
        needed = sum(repacked_size(w) for expert in experts for w in expert)
        repack = should_repack(needed, available_memory())
        natives = [(_native_of(gate), _native_of(up), _native_of(down)) for gate, up, down in experts]
        try:
            self._native = _native.ExpertLayer(natives, threads, repack)
        except ValueError as error:
            raise UsageError(f"The experts cannot be used: {error}.") from error
        self.count = len(experts)

    def __call__(self, x: F32, ids: npt.NDArray[np.integer], weights: F32) -> F32:
        """The experts' rows, summed."""
        ids = np.asarray(ids)
        if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < self.count:
            raise UsageError(f"Expert ids lie in {ids.min()}..{ids.max()}, but the layer has {self.count} experts.")
        out = np.empty(x.shape, np.float32)
        rows, chosen = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(ids, np.uint32)
        try:
            self._native.run(rows, chosen, np.ascontiguousarray(weights, np.float32), out)
        except ValueError as error:
            raise UsageError(f"The experts cannot be computed: {error}.") from error
        return out


def expert_layer(gates: Sequence[Matrix], ups: Sequence[Matrix], downs: Sequence[Matrix], threads: int) -> ExpertLayer:
    """The layer whose expert i is gates[i], ups[i] (W, D) and downs[i] (D, W), on `threads` (0: every core)."""
    return ExpertLayer(tuple(zip(gates, ups, downs, strict=True)), threads)


def _native_of(w: Matrix) -> "_native.Matrix":
    return native_matrix(w)
