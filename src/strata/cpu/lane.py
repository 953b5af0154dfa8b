"""One conversation as the extension holds it: the semantics of `strata.arithmetic.LaneState`, with shared memory."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.cpu import _native
from strata.errors import UsageError
from strata.families import Spec

Arrays = dict[str, npt.NDArray[Any]]
KV_DTYPES: dict[str, np.dtype[Any]] = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(np.uint16),
}


class Lane:
    """A conversation: its tokens and the state after them. `forward` advances it, `copy` is a checkpoint.

    Keys and values lie in chunks of 256 positions that copies share until one of them writes. A window may leave
    `undecided` rows (drafts): `accept` says how many of them the conversation keeps; before that nothing else is
    possible. `drafts`: the MTP block's cache follows the trunk, so that `draft` can be asked.
    """

    def __init__(self, owner: "_native.Model", spec: Spec, kv: str, native: "_native.Lane") -> None:
        self._owner, self._spec, self._kv = owner, spec, kv
        self.native = native
        self.tokens: list[int] = []
        self._tentative: list[int] = []

    @classmethod
    def empty(cls, owner: "_native.Model", spec: Spec, kv: str, drafts: bool) -> "Lane":
        """A conversation without tokens."""
        return cls(owner, spec, kv, _native.Lane(owner, drafts))

    @property
    def length(self) -> int:
        """Tokens held, undecided ones not counted."""
        return len(self.tokens)

    @property
    def undecided(self) -> int:
        """Rows that the last window computed tentatively and nobody has decided about."""
        return len(self._tentative)

    def advance(self, tokens: list[int], tentative: int) -> None:
        """Note the tokens of a window that was computed."""
        decided = len(tokens) - tentative
        self.tokens.extend(tokens[:decided])
        self._tentative = tokens[decided:]

    def accept(self, count: int) -> None:
        """Keep the first `count` undecided rows and forget the others; UsageError if there are not so many."""
        if not 0 <= count <= self.undecided:
            raise UsageError(f"{count} rows were accepted, but {self.undecided} are undecided.")
        self.native.accept(count)
        self.tokens.extend(self._tentative[:count])
        self._tentative = []

    def copy(self) -> "Lane":
        """A checkpoint: either may go on without the other. UsageError while rows are undecided."""
        if self._tentative:
            raise UsageError(f"The conversation has {self.undecided} undecided rows; accept has to be called first.")
        twin = Lane(self._owner, self._spec, self._kv, self.native.copy())
        twin.tokens = list(self.tokens)
        return twin

    def arrays(self) -> Arrays:
        """Every array of the state by name, keys and values in the caches' type (bf16 as uint16); for `restore`."""
        return {name: array.copy() for name, array in self.sections()}

    def settle(self) -> None:
        """Compute what accepted drafts left for later; from here on reading the state changes nothing."""
        self.native.settle(self._owner)

    def sections(self, *, rows: bool = True) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """`arrays` one after the other, each valid until the next is asked for.

        `rows=False`: without the tokens and the rows of caches, which a longer state on the same path has (`shorter`).
        """
        buffers = _Buffers()
        if rows:
            yield "tokens", np.array(self.tokens, np.int64)
        d, n = self._spec.delta, self._spec.ngram
        delta = cache = 0
        for layer, kind in enumerate(self._spec.kinds):
            at = f"layers.{layer}."
            if kind == "delta":
                state = buffers.get("state", (d.value_heads, d.key_dim, d.value_dim), np.float32)
                tail = buffers.get("tail", (d.conv_taps - 1, d.conv_width), np.float32)
                self.native.read_delta(self._owner, delta, state.reshape(-1), tail.reshape(-1))
                yield f"{at}state", state
                yield f"{at}tail", tail
                delta += 1
            else:
                yield from self._cache(at, cache, rows, buffers)
                cache += 1
        wide = self._spec.streams * self._spec.hidden
        if n is not None:
            tokens = np.empty(n.order - 1, np.int64)
            tail = np.empty(((n.conv_taps - 1) * n.order, wide), np.float32)
            self.native.read_ngram(tokens, tail.reshape(-1))
            yield "ngram.tokens", tokens
            yield "ngram.tail", tail
        if self._spec.mtp_layers:
            yield from self._cache("mtp.", cache, rows, buffers)
            waiting = np.empty((self.native.waiting_rows(), wide), np.float32)
            following = np.empty(self.native.following_tokens(), np.int64)
            self.native.read_waiting(waiting.reshape(-1), following)
            yield "mtp.waiting", waiting
            yield "mtp.following", following

    def _cache(
        self, at: str, slot: int, rows: bool, buffers: "_Buffers"
    ) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        a, dtype = self._spec.attention, KV_DTYPES[self._kv]
        length, blocks, open_rows = self.native.cache_lengths(slot)
        shape = (length if rows else 0, a.kv_heads, a.head_dim)
        k, v = (buffers.get(name, shape, dtype) for name in ("k", "v"))
        index = buffers.get("index", (blocks if rows else 0, 1, a.index_dim), dtype)
        rest = np.empty((open_rows, a.index_dim), np.float32)
        self.native.read_cache(slot, _bytes(k), _bytes(v), _bytes(index), rest.reshape(-1))
        if rows:
            yield f"{at}k", k
            yield f"{at}v", v
            yield f"{at}index", index[:, 0]
        else:
            yield f"{at}rows", np.array(length, np.int64)
        yield f"{at}open", rest

    def shorter(self, length: int, arrays: Mapping[str, npt.NDArray[Any]]) -> "Lane":
        """The state after the first `length` tokens: cache rows shared with this one, the rest from `sections`.

        `arrays` are those of `sections(rows=False)` of that state. ValueError where they do not fit.
        """
        twin = Lane.empty(self._owner, self._spec, self._kv, self.native.drafts)
        delta = cache = 0
        for layer, kind in enumerate(self._spec.kinds):
            at = f"layers.{layer}."
            if kind == "delta":
                twin._restore_delta(at, delta, arrays)
                delta += 1
            else:
                twin._share_cache(at, cache, self, arrays)
                cache += 1
        if self._spec.mtp_layers:
            twin._share_cache("mtp.", cache, self, arrays)
        twin._restore_rest(self.tokens[:length], arrays)
        return twin

    def _share_cache(self, at: str, slot: int, longer: "Lane", arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        rows = int(arrays[f"{at}rows"])
        self.native.share_cache(slot, longer.native, rows, arrays[f"{at}open"].reshape(-1))

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Become the conversation whose `arrays` these are (of a model of the same shape and cache type)."""
        delta = cache = 0
        for layer, kind in enumerate(self._spec.kinds):
            at = f"layers.{layer}."
            if kind == "delta":
                self._restore_delta(at, delta, arrays)
                delta += 1
            else:
                self._restore_cache(at, cache, arrays)
                cache += 1
        if self._spec.mtp_layers:
            self._restore_cache("mtp.", cache, arrays)
        self._restore_rest([int(t) for t in arrays["tokens"]], arrays)

    def _restore_delta(self, at: str, slot: int, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.native.write_delta(slot, arrays[f"{at}state"].reshape(-1), arrays[f"{at}tail"].reshape(-1))

    def _restore_rest(self, tokens: list[int], arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        if self._spec.ngram is not None:
            self.native.write_ngram(arrays["ngram.tokens"], arrays["ngram.tail"].reshape(-1))
        waiting, following = np.empty(0, np.float32), np.empty(0, np.int64)
        if self._spec.mtp_layers:
            waiting, following = arrays["mtp.waiting"].reshape(-1), arrays["mtp.following"]
        self.tokens = tokens
        self._tentative = []
        self.native.write_rest(len(tokens), waiting, following)

    def _restore_cache(self, at: str, slot: int, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        k, v, index = (np.ascontiguousarray(arrays[f"{at}{name}"]) for name in ("k", "v", "index"))
        self.native.write_cache(slot, _bytes(k), _bytes(v), _bytes(index[:, None]), arrays[f"{at}open"].reshape(-1))


class _Buffers:
    """Memory for arrays that are needed one layer at a time: one buffer a name, as large as its largest array."""

    def __init__(self) -> None:
        self._buffers: dict[str, npt.NDArray[np.uint8]] = {}

    def get(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """An array in the buffer of that name; what it held is lost."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if name not in self._buffers or len(self._buffers[name]) < size:
            self._buffers[name] = np.empty(size, np.uint8)
        return self._buffers[name][:size].view(dtype).reshape(shape)


def _bytes(rows: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Rows (n, G, D) as bytes (n, G, D * size): a view."""
    return rows.reshape(-1).view(np.uint8).reshape(*rows.shape[:2], rows.shape[2] * rows.itemsize)
