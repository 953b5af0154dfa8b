"""Quantizers to GGUF block formats that search the scale with the least squared error (numpy).

Formats: the GGUF specification's block layouts, as `gguf.quants` reads them. Every function takes float32 rows
(rows, columns) and returns uint8 rows (rows, bytes).
"""

from __future__ import annotations

from collections.abc import Callable

import gguf
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

IQ4_NL_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
_LINEAR = {"Q4_0": (-8, 7), "Q5_0": (-16, 15), "Q8_0": (-127, 127)}


def _half(x: Floats) -> Bytes:
    return x.astype(np.float16).view(np.uint8).reshape(*x.shape, 2)


def _best_scale(
    x: Floats,
    nearest: Callable[[Floats], Floats],
    extremes: list[float],
    steps: int = 17,
    span: tuple[float, float] = (0.82, 1.14),
) -> Floats:
    """The scale of each block (last axis) whose rounded values come nearest to it, among candidates near the largest
    value over each of `extremes` (`steps` factors over `span`), each refined by least squares."""
    peak = np.take_along_axis(x, np.abs(x).argmax(-1, keepdims=True), -1)
    best, best_gain = np.zeros(x.shape[:-1], np.float32), np.zeros(x.shape[:-1], np.float32)
    for extreme in extremes:
        for factor in np.linspace(*span, steps, dtype=np.float32):
            scale = peak / np.float32(extreme) * factor
            q = nearest(np.divide(x, scale, out=np.zeros_like(x), where=scale != 0))
            square = (q * q).sum(-1)
            dot = (x * q).sum(-1)
            gain = np.divide(dot * dot, square, out=np.zeros_like(dot), where=square > 0)
            fitted = np.divide(dot, square, out=np.zeros_like(dot), where=square > 0)
            better = gain > best_gain
            best, best_gain = np.where(better, fitted, best), np.where(better, gain, best_gain)
    return best


def _codes(x: Floats, scale: Floats, nearest: Callable[[Floats], Floats]) -> Floats:
    scale = scale[..., None]
    return nearest(np.divide(x, scale, out=np.zeros_like(x), where=scale != 0))


def _linear(low: int, high: int) -> Callable[[Floats], Floats]:
    return lambda y: np.clip(np.rint(y), low, high)


def _nearest_value(y: Floats) -> Floats:
    middles = (IQ4_NL_VALUES[1:] + IQ4_NL_VALUES[:-1]) / 2
    return IQ4_NL_VALUES[np.searchsorted(middles, y)]


def _nibbles(q: npt.NDArray[np.uint8]) -> Bytes:
    return q[:, :16] | q[:, 16:] << 4


def q32(rows: Floats, name: str) -> Bytes:
    """Q4_0, Q5_0, Q8_0 and IQ4_NL: blocks of 32 with one half-precision scale."""
    x = rows.reshape(-1, 32).astype(np.float32)
    if name == "IQ4_NL":
        d = _best_scale(x, _nearest_value, [-127.0, 113.0])
        values = _codes(x, d.astype(np.float16).astype(np.float32), _nearest_value)
        packed = _nibbles(np.searchsorted(IQ4_NL_VALUES, values).astype(np.uint8))
    else:
        low, high = _LINEAR[name]
        d = _best_scale(x, _linear(low, high), [low] if name == "Q8_0" else [low, high], 5 if name == "Q8_0" else 17)
        q = _codes(x, d.astype(np.float16).astype(np.float32), _linear(low, high))
        if name == "Q8_0":
            packed = q.astype(np.int8).view(np.uint8)
        else:
            q = (q - low).astype(np.uint8)
            packed = _nibbles(q & 15)
            if name == "Q5_0":
                packed = np.concatenate([np.packbits(q >> 4, axis=-1, bitorder="little"), packed], -1)
    return np.concatenate([_half(d), packed], -1).reshape(len(rows), -1)


def q6_k(rows: Floats) -> Bytes:
    """Q6_K: 256 values, 16 signed 8-bit scales of 16 values each, one half-precision scale."""
    x = rows.reshape(-1, 16, 16).astype(np.float32)
    nearest = _linear(-32, 31)
    scales = _best_scale(x, nearest, [-32.0, 31.0], 9)
    largest = np.take_along_axis(scales, np.abs(scales).argmax(-1, keepdims=True), -1)[:, 0]
    d = (largest / -128).astype(np.float16).astype(np.float32)
    sc = np.clip(np.rint(np.divide(scales, d[:, None], out=np.zeros_like(scales), where=d[:, None] != 0)), -128, 127)
    q = (_codes(x, d[:, None] * sc, nearest) + 32).astype(np.uint8).reshape(-1, 2, 4, 32)
    low, high = q & 15, q >> 4
    ql = np.concatenate([low[:, :, 0] | low[:, :, 2] << 4, low[:, :, 1] | low[:, :, 3] << 4], -1).reshape(-1, 128)
    qh = (high[:, :, 0] | high[:, :, 1] << 2 | high[:, :, 2] << 4 | high[:, :, 3] << 6).reshape(-1, 64)
    return np.concatenate([ql, qh, sc.astype(np.int8).view(np.uint8), _half(d)], -1).reshape(len(rows), -1)


def _scale_and_minimum(x: Floats) -> tuple[Floats, Floats]:
    """Scale and minimum m >= 0 of each block such that scale*q - m with q in 0..15 comes nearest to it."""
    low, high = np.minimum(x.min(-1), 0), x.max(-1)
    best_scale, best_min = np.zeros_like(low), np.zeros_like(low)
    best_error = np.full(low.shape, np.inf, np.float32)
    for top in np.linspace(12.5, 17, 19, dtype=np.float32):
        scale, minimum = np.maximum(high - low, 1e-12) / top, -low
        for _ in range(2):
            q = np.clip(np.rint((x + minimum[..., None]) / scale[..., None]), 0, 15)
            mean_q, mean_x = q.mean(-1), x.mean(-1)
            spread = ((q - mean_q[..., None]) ** 2).sum(-1)
            fitted = ((q - mean_q[..., None]) * x).sum(-1) / np.maximum(spread, 1e-9)
            scale = np.where(fitted > 0, fitted, scale)
            minimum = np.maximum(scale * mean_q - mean_x, 0)
            plain = (q * x).sum(-1) / np.maximum((q * q).sum(-1), 1e-9)
            scale = np.where((minimum == 0) & (plain > 0), plain, scale)
        q = np.clip(np.rint((x + minimum[..., None]) / scale[..., None]), 0, 15)
        error = ((scale[..., None] * q - minimum[..., None] - x) ** 2).sum(-1)
        better = error < best_error
        best_error = np.where(better, error, best_error)
        best_scale, best_min = np.where(better, scale, best_scale), np.where(better, minimum, best_min)
    return best_scale, best_min


def q4_k(rows: Floats) -> Bytes:
    """Q4_K: 256 values, eight 6-bit scales and minimums of 32 values each, two half-precision scales."""
    x = rows.reshape(-1, 8, 32).astype(np.float32)
    scales, minimums = _scale_and_minimum(x)
    d, dmin = ((v.max(-1) / 63).astype(np.float16).astype(np.float32) for v in (scales, minimums))

    def six_bits(v: Floats, unit: Floats) -> npt.NDArray[np.uint8]:
        whole = np.divide(v, unit[:, None], out=np.zeros_like(v), where=unit[:, None] != 0)
        return np.clip(np.rint(whole), 0, 63).astype(np.uint8)

    sc, mn = six_bits(scales, d), six_bits(minimums, dmin)
    q = _codes(x + (dmin[:, None] * mn)[..., None], d[:, None] * sc, _linear(0, 15)).astype(np.uint8)
    packed = np.concatenate(
        [sc[:, :4] | sc[:, 4:] >> 4 << 6, mn[:, :4] | mn[:, 4:] >> 4 << 6, sc[:, 4:] & 15 | (mn[:, 4:] & 15) << 4], -1
    )
    qs = (q[:, ::2] | q[:, 1::2] << 4).reshape(-1, 128)
    return np.concatenate([_half(d), _half(dmin), packed, qs], -1).reshape(len(rows), -1)


def _nearest_entries(y: Floats, grid: Floats) -> npt.NDArray[np.int64]:
    """The entry of the grid (entries, 4) nearest to the magnitudes of each four values of y (..., 4n): (..., n)."""
    fours = np.abs(y).reshape(-1, 4)
    norms = (grid * grid).sum(-1) / 2
    parts = [(norms - fours[i : i + 16384] @ grid.T).argmin(-1) for i in range(0, len(fours), 16384)]
    return np.concatenate(parts).reshape(*y.shape[:-1], -1)


def iq3_s(rows: Floats) -> Bytes:
    """IQ3_S: 256 values in groups of four magnitudes from a grid of 512, a sign a value, a 4-bit scale each 32."""
    gguf.quants.IQ3_S.init_grid()
    grid = gguf.quants.IQ3_S.grid.reshape(-1, 4).astype(np.float32)
    x = np.abs(rows.reshape(-1, 8, 32).astype(np.float32))
    scales = _best_scale(x, lambda y: grid[_nearest_entries(y, grid)].reshape(y.shape), [15.0], 9, (0.7, 1.1))
    d = (scales.max(-1) / 31).astype(np.float16).astype(np.float32)
    steps = np.divide(scales, d[:, None], out=np.ones_like(scales), where=d[:, None] != 0)
    codes = np.clip(np.rint((steps - 1) / 2), 0, 15).astype(np.uint8)
    chosen = _codes(x, d[:, None] * (1 + 2 * codes), lambda y: _nearest_entries(y, grid))
    qs, high = (chosen & 255).astype(np.uint8).reshape(-1, 64), (chosen >> 8).astype(np.uint8)
    qh = np.packbits(high, axis=-1, bitorder="little").reshape(-1, 8)
    signs = np.packbits((rows < 0).reshape(-1, 256), axis=-1, bitorder="little")
    packed = [_half(d), qs, qh, signs, codes[:, ::2] | codes[:, 1::2] << 4]
    return np.concatenate(packed, -1).reshape(len(rows), -1)


def quantize(array: Floats, name: str) -> tuple[npt.NDArray[np.generic], gguf.GGMLQuantizationType]:
    """An array (..., columns) in the named format: packed bytes (..., bytes), or float32 as it is."""
    kind = gguf.GGMLQuantizationType[name]
    if name == "F32":
        return np.ascontiguousarray(array, np.float32), kind
    block = gguf.GGML_QUANT_SIZES[kind][0]
    if array.shape[-1] % block:
        raise SystemExit(f"{name} needs rows of a multiple of {block} values, not {array.shape[-1]}")
    rows = np.ascontiguousarray(array, np.float32).reshape(-1, array.shape[-1])
    packed = {"Q6_K": q6_k, "Q4_K": q4_k, "IQ3_S": iq3_s}.get(name, lambda r: q32(r, name))(rows)
    return packed.reshape(*array.shape[:-1], -1), kind
