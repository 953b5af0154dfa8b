"""One conversation as the extension holds it: the semantics of `strata.arithmetic.LaneState`, with shared memory."""

import math
from collections.abc import Container, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.cpu import _native
from strata.cpu.pieces import Pieces, Section, fill, whole
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
        self._need_decided()
        twin = Lane(self._owner, self._spec, self._kv, self.native.copy())
        twin.tokens = list(self.tokens)
        return twin

    def _need_decided(self) -> None:
        if self._tentative:
            raise UsageError(f"The conversation has {self.undecided} undecided rows; accept has to be called first.")

    def arrays(self) -> Arrays:
        """Every array of the state by name, keys and values (G, n, D) in the caches' type (bf16 as uint16)."""
        return {name: whole(section) for name, section in self.sections()}

    def settle(self) -> None:
        """Compute what drafts and the MTP block left for later; from here on reading the state changes nothing."""
        self._need_decided()
        self.native.settle(self._owner)

    def sections(self, *, rows: bool = True) -> Iterator[tuple[str, Section]]:
        """`arrays` one after the other, each valid until the next is asked for; rows of caches where they lie.

        A lane without drafts has no "mtp." ones.

        `rows=False`: without the tokens and the rows of caches, which a longer state on the same path has (`shorter`).
        """
        self._need_decided()
        buffers = _Buffers()
        if rows:
            yield "tokens", np.array(self.tokens, np.int64)
        d, n = self._spec.delta, self._spec.ngram
        for at, delta, slot in self._layers():
            if delta:
                state = buffers.get("state", (d.value_heads, d.key_dim, d.value_dim), np.float32)
                tail = buffers.get("tail", (d.conv_taps - 1, d.conv_width), np.float32)
                self.native.read_delta(self._owner, slot, state.reshape(-1), tail.reshape(-1))
                yield f"{at}state", state
                yield f"{at}tail", tail
            else:
                yield from self._cache(at, slot, rows)
        wide = self._spec.streams * self._spec.hidden
        if n is not None:
            tokens = np.empty(n.order - 1, np.int64)
            tail = np.empty(((n.conv_taps - 1) * n.order, wide), np.float32)
            self.native.read_ngram(tokens, tail.reshape(-1))
            yield "ngram.tokens", tokens
            yield "ngram.tail", tail
        if self.native.drafts:
            yield from self._mtp(rows)

    def _layers(self) -> Iterator[tuple[str, bool, int]]:
        """Every layer: how its sections' names begin, whether it is a delta layer, its number among its kind."""
        deltas = caches = 0
        for layer, kind in enumerate(self._spec.kinds):
            delta = kind == "delta"
            yield f"layers.{layer}.", delta, deltas if delta else caches
            deltas, caches = deltas + delta, caches + (not delta)

    def _mtp(self, rows: bool) -> Iterator[tuple[str, Section]]:
        """The MTP block's cache, the trunk's streams that it has not read yet, and the tokens after them."""
        yield from self._cache("mtp.", self._mtp_slot, rows)
        waiting = np.empty((self.native.waiting_rows(), self._spec.streams * self._spec.hidden), np.float32)
        following = np.empty(self.native.following_tokens(), np.int64)
        self.native.read_waiting(waiting.reshape(-1), following)
        yield "mtp.waiting", waiting
        yield "mtp.following", following

    @property
    def _mtp_slot(self) -> int:
        return sum(kind != "delta" for kind in self._spec.kinds)

    def _cache(self, at: str, slot: int, rows: bool) -> Iterator[tuple[str, Section]]:
        length, _, open_rows = self.native.cache_lengths(slot)
        if rows:
            for which, (name, shape) in enumerate(self._row_shapes(at, length)):
                yield name, Pieces(shape, KV_DTYPES[self._kv], self.native.cache_rows(slot, which))
        else:
            yield f"{at}rows", np.array(length, np.int64)
        rest = np.empty((open_rows, self._spec.attention.index_dim), np.float32)
        self.native.read_open(slot, rest.reshape(-1))
        yield f"{at}open", rest

    def _row_shapes(self, at: str, length: int) -> list[tuple[str, tuple[int, ...]]]:
        """Names and shapes of a cache's rows: keys and values (G, n, D), pooled index keys (blocks, Di)."""
        spec, a = self._spec, self._spec.attention
        ratio = spec.ratios[spec.layers if at == "mtp." else int(at.split(".")[1])]
        wide = (a.kv_heads, length, a.head_dim)
        return [(f"{at}k", wide), (f"{at}v", wide), (f"{at}index", (length // ratio if ratio else 0, a.index_dim))]

    def shorter(self, length: int, arrays: Mapping[str, npt.NDArray[Any]]) -> "Lane":
        """The state after the first `length` tokens: cache rows shared with this one, the rest from `sections`.

        `arrays` are those of `sections(rows=False)` of that state. UsageError where this lane drafts and they have no
        MTP rows, ValueError where they do not fit.
        """
        self._need_decided()
        mtp: Mapping[str, npt.NDArray[Any]] = {}
        if self.native.drafts:
            mtp = mtp_sections({name: whole(part) for name, part in self._mtp(False)}, length, arrays)
        twin = Lane.empty(self._owner, self._spec, self._kv, self.native.drafts)
        for at, delta, slot in self._layers():
            if delta:
                twin._restore_delta(at, slot, arrays)
            else:
                twin._share_cache(at, slot, self, arrays)
        if mtp:
            twin._share_cache("mtp.", self._mtp_slot, self, mtp)
        twin._restore_rest(self.tokens[:length], arrays, mtp)
        return twin

    def _share_cache(self, at: str, slot: int, longer: "Lane", arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        rows = int(arrays[f"{at}rows"])
        self.native.share_cache(slot, longer.native, rows, arrays[f"{at}open"].reshape(-1))

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Become the conversation whose `arrays` these are (of a model of the same shape and cache type).

        UsageError, before anything changes, where this lane drafts and they have no MTP rows; ValueError where they do
        not fit. MTP rows are left where they are by a lane that does not draft.
        """
        if self.native.drafts:
            need_mtp(arrays)
        tokens: list[int] = arrays["tokens"].tolist()
        for at, delta, slot in self._layers():
            if delta:
                self._restore_delta(at, slot, arrays)
            else:
                self._restore_cache(at, slot, len(tokens), arrays)
        if self.native.drafts:
            waiting, following = arrays["mtp.waiting"], arrays["mtp.following"]
            rows = max(0, len(tokens) - len(waiting))
            check_mtp(len(tokens), rows, len(waiting), len(following))
            self._restore_cache("mtp.", self._mtp_slot, rows, arrays)
        self._restore_rest(tokens, arrays, arrays)

    def _restore_delta(self, at: str, slot: int, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.native.write_delta(slot, arrays[f"{at}state"].reshape(-1), arrays[f"{at}tail"].reshape(-1))

    def _restore_rest(
        self, tokens: list[int], arrays: Mapping[str, npt.NDArray[Any]], mtp: Mapping[str, npt.NDArray[Any]]
    ) -> None:
        if self._spec.ngram is not None:
            self.native.write_ngram(arrays["ngram.tokens"], arrays["ngram.tail"].reshape(-1))
        waiting, following = np.empty((0, 1), np.float32), np.empty(0, np.int64)
        if self.native.drafts:
            waiting, following = mtp["mtp.waiting"], mtp["mtp.following"]
            check_mtp(len(tokens), self.native.cache_lengths(self._mtp_slot)[0], len(waiting), len(following))
        self.tokens = tokens
        self._tentative = []
        self.native.write_rest(len(tokens), waiting.reshape(-1), following)

    def _restore_cache(self, at: str, slot: int, length: int, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        parts = self.native.fresh_cache(slot, length, np.ascontiguousarray(arrays[f"{at}open"]).reshape(-1))
        for (name, shape), part in zip(self._row_shapes(at, length), parts, strict=True):
            fill(arrays, name, Pieces(shape, KV_DTYPES[self._kv], part))


def need_mtp(names: Container[str]) -> None:
    """UsageError for sections of a conversation that nobody drafted for: the MTP block has not read it."""
    if "mtp.waiting" not in names:
        raise UsageError(
            "The conversation was kept without the MTP block's rows, so an engine that drafts cannot go on with it; "
            "--mtp off can."
        )


def mtp_sections(
    longer: Mapping[str, npt.NDArray[Any]], length: int, arrays: Mapping[str, npt.NDArray[Any]]
) -> Mapping[str, npt.NDArray[Any]]:
    """The "mtp." sections of the state after `length` tokens that go with the MTP rows of a longer one.

    They are its own, unless its block had read further than that of the longer one, which computed the same tokens in
    other windows: then they are those of the longer one, cut.
    """
    need_mtp(arrays)
    rows = int(longer["mtp.rows"])
    if int(arrays["mtp.rows"]) <= rows:
        return arrays
    waiting, following = longer["mtp.waiting"][: length - rows], longer["mtp.following"][: length - rows - 1]
    return {**longer, "mtp.waiting": waiting, "mtp.following": following}


def check_mtp(length: int, rows: int, waiting: int, following: int) -> None:
    """ValueError unless every position is in the MTP block's cache or waits for it with the token after it."""
    if rows + waiting != length or following != max(0, waiting - 1):
        raise ValueError(f"the MTP block has {rows} rows and {waiting} waiting ones of {length} tokens")


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
