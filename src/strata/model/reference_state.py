"""The numpy reference's state as the sections that `strata.cpu.lane` has: what one path saved, the other restores.

The reference keeps cache rows as fp32 values that its cache's type can hold; the sections have them in that type.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from strata.arithmetic import LaneState
from strata.arithmetic.state import AttentionState, DeltaState, Growing, NgramState
from strata.arithmetic.types import F32
from strata.cpu.lane import KV_DTYPES, check_mtp, mtp_sections, need_mtp
from strata.families import Spec

Array = npt.NDArray[Any]
ROWS = ("k", "v", "index")


def sections(state: LaneState, waiting: Sequence[F32] | None, kv: str, *, rows: bool) -> Iterator[tuple[str, Array]]:
    """Names, dtypes and order of `cpu.lane.Lane.sections`. `waiting`: None for a lane that does not draft."""
    if rows:
        yield "tokens", np.array(state.tokens, np.int64)
    for layer, part in enumerate(state.layers):
        at = f"layers.{layer}."
        if isinstance(part, DeltaState):
            yield f"{at}state", part.state
            yield f"{at}tail", part.tail
        else:
            yield from _cache(at, part, kv, rows)
    if state.ngram is not None:
        yield "ngram.tokens", state.ngram.tokens
        yield "ngram.tail", state.ngram.tail
    if waiting is not None:
        yield from _mtp(state, waiting, kv, rows)


def restored(spec: Spec, kv: str, drafts: bool, arrays: Mapping[str, Array]) -> tuple[LaneState, list[F32]]:
    """The state of these sections and the streams that wait for the MTP block.

    UsageError for sections without MTP rows if `drafts`, ValueError where they do not fit.
    """
    if drafts:
        need_mtp(arrays)
    state = _fixed_parts(spec, arrays)
    for at, cache in _caches(state, drafts):
        for name in ROWS:
            getattr(cache, name).append(_widened(arrays[at + name], kv))
        if cache.v.length != cache.k.length:
            raise ValueError(f"{cache.k.length} keys and {cache.v.length} values")
        cache.open = arrays[at + "open"].copy()
    state.tokens = arrays["tokens"].tolist()
    return state, _waiting(state, arrays) if drafts else []


def shortened(
    longer: LaneState, waiting: Sequence[F32] | None, length: int, kv: str, arrays: Mapping[str, Array]
) -> tuple[LaneState, list[F32]]:
    """The state after the first `length` tokens of a longer one: its cache rows, the rest from `sections(rows=False)`.

    `waiting`: the longer one's streams that wait for the MTP block; None where it does not draft. Errors as `restored`.
    """
    mtp: Mapping[str, Array] = {}
    if waiting is not None:
        mtp = mtp_sections(dict(_mtp(longer, waiting, kv, rows=False)), length, arrays)
    state = _fixed_parts(longer.spec, arrays)
    drafts = waiting is not None
    for (at, cache), (_, whole) in zip(_caches(state, drafts), _caches(longer, drafts), strict=True):
        given = mtp if at == "mtp." else arrays
        rows = int(given[at + "rows"])
        if rows > whole.k.length:
            raise ValueError("the longer conversation has fewer rows")
        ratio = _ratio(longer.spec, at)
        counts = {"k": rows, "v": rows, "index": rows // ratio if ratio else 0}
        for name, count in counts.items():
            getattr(cache, name).append(getattr(whole, name).rows[:count])
        cache.open = given[at + "open"].copy()
    state.tokens = longer.tokens[:length]
    return state, _waiting(state, mtp) if mtp else []


def _fixed_parts(spec: Spec, arrays: Mapping[str, Array]) -> LaneState:
    """A state with the recurrent parts of the sections, its caches empty."""
    state = LaneState.empty(spec)
    for layer, part in enumerate(state.layers):
        if isinstance(part, DeltaState):
            part.state = _fitting(arrays[f"layers.{layer}.state"], part.state)
            part.tail = _fitting(arrays[f"layers.{layer}.tail"], part.tail)
    if state.ngram is not None:
        ngram = state.ngram
        tokens, tail = _fitting(arrays["ngram.tokens"], ngram.tokens), _fitting(arrays["ngram.tail"], ngram.tail)
        state.ngram = NgramState(tokens, tail)
    return state


def _fitting(array: Array, like: Array) -> Array:
    if array.shape != like.shape or array.dtype != like.dtype:
        raise ValueError(f"{array.dtype} {list(array.shape)} is not {like.dtype} {list(like.shape)}")
    return array.copy()


def _caches(state: LaneState, drafts: bool) -> Iterator[tuple[str, AttentionState]]:
    for layer, part in enumerate(state.layers):
        if isinstance(part, AttentionState):
            yield f"layers.{layer}.", part
    if drafts:
        assert state.mtp is not None
        yield "mtp.", state.mtp


def _ratio(spec: Spec, at: str) -> int:
    return spec.ratios[spec.layers if at == "mtp." else int(at.split(".")[1])]


def _cache(at: str, cache: AttentionState, kv: str, rows: bool) -> Iterator[tuple[str, Array]]:
    if rows:
        for name in ROWS:
            yield at + name, _narrowed(getattr(cache, name), kv)
    else:
        yield f"{at}rows", np.array(cache.k.length, np.int64)
    yield f"{at}open", cache.open


def _mtp(state: LaneState, waiting: Sequence[F32], kv: str, rows: bool) -> Iterator[tuple[str, Array]]:
    assert state.mtp is not None
    yield from _cache("mtp.", state.mtp, kv, rows)
    streams = np.empty((len(waiting), state.spec.streams * state.spec.hidden), np.float32)
    for row, stream in zip(streams, waiting, strict=True):
        row[:] = stream.reshape(-1)
    yield "mtp.waiting", streams
    yield "mtp.following", np.array(state.tokens[state.length - len(waiting) + 1 :], np.int64)


def _waiting(state: LaneState, arrays: Mapping[str, Array]) -> list[F32]:
    assert state.mtp is not None
    streams, following = arrays["mtp.waiting"].copy(), arrays["mtp.following"]
    check_mtp(state.length, state.mtp.k.length, len(streams), len(following))
    return list(streams.reshape(len(streams), state.spec.streams, state.spec.hidden))


def _narrowed(cache: Growing, kv: str) -> Array:
    """fp32 rows in the cache's type, groups first: no bit is lost, since they were rounded when they were made."""
    rows = np.ascontiguousarray(cache.rows.swapaxes(0, 1) if cache.rows.ndim == 3 else cache.rows)
    if kv == "bf16":
        return (rows.view(np.uint32) >> 16).astype(np.uint16)
    return rows.astype(KV_DTYPES[kv])


def _widened(rows: Array, kv: str) -> F32:
    if rows.dtype != KV_DTYPES[kv]:
        raise ValueError(f"cache rows of {rows.dtype}, not {KV_DTYPES[kv]}")
    wide: F32 = (rows.astype(np.uint32) << 16).view(np.float32) if kv == "bf16" else rows.astype(np.float32)
    return wide.swapaxes(0, 1) if wide.ndim == 3 else wide
