// Sixteen rows of a quantized format as floats; docs/arithmetic.md, section 17. For native/product_rows.h.
#pragma once
#include "product_tile.h"

namespace strata {
namespace STRATA_ISA {
namespace {

// Where element e of a block stands among its 32 codes.
template <class F>
constexpr std::size_t code_of(std::size_t e) {
    if (!F::transposed) return e;
    constexpr std::size_t place[4] = {0, 2, 1, 3};  // of the quarters 0, 4, 8, 12 in a word: see quantize.cpp
    return e / 16 * 16 + e % 4 * 4 + place[e % 16 / 4];
}

template <class F, std::size_t b>
STRATA_OP void dequantize_block(const std::uint8_t* group, std::size_t nb, float* const out[16], std::size_t at,
                                std::size_t count) {
    alignas(64) std::uint8_t codes[512];
    alignas(64) float d[2][16] = {}, sub[2][16] = {}, minimum[2][16] = {}, dmin[16] = {};
    Bytes w[8];
    Scales s;
    F::template codes<b>(group, w);
    F::template scales<b>(group, nb, s);
    for (int i = 0; i < 8; ++i) store_bytes(codes + 64 * i, w[i]);
    store_floats(d[0], s.d[0]);
    if constexpr (F::two_scales) store_floats(d[1], s.d[1]);
    if constexpr (F::sub != Sub::none) store_floats(sub[0], s.sub[0]);
    if constexpr (F::sub == Sub::half) store_floats(sub[1], s.sub[1]);
    if constexpr (F::min == Min::block || F::min == Min::half) store_floats(minimum[0], s.minimum[0]);
    if constexpr (F::min == Min::half) store_floats(minimum[1], s.minimum[1]);
    if constexpr (F::min != Min::none) store_floats(dmin, s.dmin);
    constexpr int zero = F::offset < 0 ? 0 : 1 << (F::offset < 0 ? 0 : F::offset);
    for (std::size_t r = 0; r < count; ++r)
        for (std::size_t e = 0; e < block; ++e) {
            const std::size_t c = code_of<F>(e), half = e / 16;
            float value = static_cast<float>(codes[c / 4 * 64 + r * 4 + c % 4] - zero);
            // An integer product has no -0.
            if constexpr (F::sub != Sub::none) value = value * sub[F::sub == Sub::half ? half : 0][r] + 0.0f;
            value = value * d[F::two_scales ? half : 0][r];
            if constexpr (F::min == Min::one) value = value - dmin[r];
            if constexpr (F::min == Min::block) value = value - minimum[0][r] * dmin[r];
            if constexpr (F::min == Min::half) value = value - minimum[half][r] * dmin[r];
            out[r][at + e] = value;
        }
}

template <class F, std::size_t b = 0>
STRATA_OP void dequantize_group(const std::uint8_t* group, std::size_t nb, float* const out[16], std::size_t at,
                                std::size_t count) {
    if (nb <= b) return;
    dequantize_block<F, b>(group, nb, out, at, count);
    if constexpr (b + 1 < F::blocks) dequantize_group<F, b + 1>(group, nb, out, at + block, count);
}

// The first `count` of sixteen rows, k elements each.
template <class F>
void dequantize_rows(const std::uint8_t* const rows[16], std::size_t k, std::size_t count, float* const out[16]) {
    alignas(64) std::uint8_t group[F::group_bytes(F::blocks)];
    std::size_t from = 0;
    for (std::size_t at = 0; at < k; at += F::blocks * block) {
        const std::size_t left = (k - at) / block, nb = left < F::blocks ? left : F::blocks;
        F::pack(rows, from, nb, group);
        dequantize_group<F>(group, nb, out, at, count);
        from += F::file_bytes(nb);
    }
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
