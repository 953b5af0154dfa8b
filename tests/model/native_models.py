"""A toy model of mixed formats, its numpy reference, its C++ one, and the comparison of their states."""

from dataclasses import replace

import numpy as np
from oracles.oracle_gguf import Geometry, write

from strata import families
from strata.arithmetic import LaneState, Reference, bind
from strata.arithmetic.state import AttentionState, DeltaState
from strata.cpu.model import NativeModel
from strata.weights import open_gguf

SIZES = Geometry(budget=32, experts=8, used=3, width=96, hidden=256)
F32 = np.float32


class Models:
    """One file's weights, and models of them."""

    def __init__(self, path):
        self.opened = families.open_family(open_gguf(path))
        self.spec = self.opened.spec
        self.weights = bind(self.opened.source, self.spec)

    @classmethod
    def written(cls, directory, dense="Q5_K", experts="IQ3_S", down="IQ4_NL", **changes):
        path = directory / "model.gguf"
        write(path, dense, experts, down=down, sizes=replace(SIZES, **changes), seed=3)
        return cls(path)

    def reference(self, kv="bf16"):
        return Reference(self.spec, self.weights, kv)

    def native(self, kv="bf16", threads=1):
        return NativeModel(self.spec, self.weights, kv, threads)

    def tokens(self, lane, count):
        rng = np.random.default_rng(lane)
        tokens = rng.integers(0, self.spec.vocab_size, count)
        tokens[rng.integers(0, count, 1 + count // 40)] = self.spec.ngram.eos
        return tokens.tolist()


def widened(values):
    """Rows of a cache's type as fp32."""
    return (values.astype(np.uint32) << 16).view(F32) if values.dtype == np.uint16 else values.astype(F32)


def assert_same_state(lane, state: LaneState, *, mtp_rows=None):
    """Every array of a C++ lane has the bits of the reference's state; of the MTP cache the first `mtp_rows` rows."""
    arrays = lane.arrays()
    assert lane.tokens == state.tokens == arrays["tokens"].tolist()
    for layer, want in enumerate(state.layers):
        at = f"layers.{layer}."
        if isinstance(want, DeltaState):
            assert arrays[at + "state"].tobytes() == want.state.tobytes(), at
            assert arrays[at + "tail"].tobytes() == want.tail.tobytes(), at
        else:
            _same_cache(arrays, at, want)
    if state.ngram is not None:
        assert arrays["ngram.tokens"].tolist() == state.ngram.tokens.tolist()
        assert arrays["ngram.tail"].tobytes() == state.ngram.tail.tobytes()
    if mtp_rows is not None:
        for name in ("k", "v"):
            got, want = widened(arrays["mtp." + name]).swapaxes(0, 1), getattr(state.mtp, name).rows
            assert min(len(got), len(want)) >= mtp_rows
            assert got[:mtp_rows].tobytes() == want[:mtp_rows].tobytes()


def _same_cache(arrays, at, want: AttentionState):
    for name in ("k", "v"):
        assert widened(arrays[at + name]).tobytes() == getattr(want, name).rows.swapaxes(0, 1).tobytes(), at + name
    assert widened(arrays[at + "index"]).tobytes() == want.index.rows.tobytes(), at + "index"
    assert arrays[at + "open"].tobytes() == want.open.tobytes(), at + "open"
