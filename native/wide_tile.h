// Tiles unpacked for many rows: a block is its 32 codes (512 bytes) and those of its scales that the format has, as floats.
#pragma once
#include "product_tile.h"

namespace strata {
namespace STRATA_ISA {
namespace {

template <int offset_, Sub sub_, Min min_, bool two_scales_>
struct WideBlock : Traits<offset_, sub_, min_, false, two_scales_> {
    static constexpr int subs = sub_ == Sub::none ? 0 : sub_ == Sub::block ? 1 : 2;
    static constexpr int minimums = min_ == Min::block || min_ == Min::half;
    static constexpr int floats = (two_scales_ ? 2 : 1) + subs + minimums + (min_ != Min::none);
    static constexpr std::size_t stride = 512 + 64 * floats;

    STRATA_OP Floats scale(const std::uint8_t* at, int i) {
        return load_floats(reinterpret_cast<const float*>(at + 512 + 64 * i));
    }
    STRATA_OP Floats sub_scale(const std::uint8_t* at, int i) { return scale(at, (two_scales_ ? 2 : 1) + i); }
    STRATA_OP Bytes minimum(const std::uint8_t* at) {
        return load_bytes(at + 512 + 64 * ((two_scales_ ? 2 : 1) + subs));
    }
    STRATA_OP Floats dmin(const std::uint8_t* at) { return scale(at, floats - 1); }
};

// What the kernels of many rows take codes as: with AMX signed bytes; else where `offset_dots` says so all offsets are 7.
template <class F>
constexpr int wide_offset = amx_dots ? -1 : F::offset < 0 || !offset_dots ? F::offset : 7;
template <class F>
constexpr int wide_shift = amx_dots ? (F::offset < 0 ? 0 : -(1 << (F::offset & 7)))
                                    : (F::offset < 0 || !offset_dots ? 0 : 128 - (1 << (F::offset & 7)));

// Formats of the same traits share it, and the kernels of many rows with it.
template <class F>
using Wide = WideBlock<wide_offset<F>, F::sub, F::min, F::two_scales>;

template <class F, int b>
STRATA_OP void widen_block(const std::uint8_t* group, std::size_t nb, std::uint8_t* out) {
    Bytes w[8];
    Scales s;
    F::template codes<b>(group, w);
    F::template scales<b>(group, nb, s);
    constexpr int shift = wide_shift<F>;
    STRATA_UNROLL for (int i = 0; i < 8; ++i) store_bytes(out + 64 * i, shift ? add_bytes(w[i], all_bytes(shift)) : w[i]);
    float* at = reinterpret_cast<float*>(out + 512);
    const auto put = [&at](Floats v) {
        store_floats(at, v);
        at += 16;
    };
    put(s.d[0]);
    if constexpr (F::two_scales) put(s.d[1]);
    STRATA_UNROLL for (int i = 0; i < Wide<F>::subs; ++i) put(s.sub[i]);
    if constexpr (Wide<F>::minimums) {
        store_bytes(at, pairs(s.minimum[0], s.minimum[F::min == Min::half]));
        at += 16;
    }
    if constexpr (F::min != Min::none) put(s.dmin);
}

template <class F, int b>
STRATA_OP void widen_from(const std::uint8_t* group, std::size_t nb, std::uint8_t* out) {
    if (nb <= b) return;
    widen_block<F, b>(group, nb, out);
    if constexpr (b + 1 < F::blocks) widen_from<F, b + 1>(group, nb, out + Wide<F>::stride);
}

// `blocks` blocks from a group's start on; `next`: what is read after this, fetched meanwhile.
template <class F>
__attribute__((noinline)) void widen(const std::uint8_t* tile, std::size_t blocks, std::uint8_t* out,
                                     const std::uint8_t* next) {
    for (std::size_t at = 0; at < blocks; at += F::blocks) {
        const std::size_t nb = blocks - at < F::blocks ? blocks - at : F::blocks, bytes = F::group_bytes(nb);
        widen_from<F, 0>(tile, nb, out);
        for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(next + i, 0, 2);
        tile += bytes;
        next += bytes;
        out += nb * Wide<F>::stride;
    }
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
