// Sixteen rows of floats (F32, F16 or BF16, from any byte) times a few rows of fp32: lane sums whose trees are made for
// sixteen outputs at a time. docs/arithmetic.md, section 2. For native/kernels/*.cpp only.
#pragma once
#include "kernels.h"
#include "simd_math.h"

namespace strata {
namespace STRATA_ISA {
namespace {

constexpr std::size_t segment = 128, half_step = 2 * lanes;
constexpr int most_rows = wide_registers ? 4 : 2;    // of x at once, times
constexpr int weight_rows = wide_registers ? 4 : 2;  // weight rows at once: their sums stay in registers

template <int format>
STRATA_OP Floats weights_at(const std::uint8_t* row, std::size_t i) {
    if constexpr (format == 0) return floats_at(row + 4 * i);
    else if constexpr (format == 30) return bfloats_at(row + 2 * i);
    else return halves_at(row + 2 * i);
}

template <int format>
STRATA_OP Floats weights_up_to(const std::uint8_t* row, std::size_t i, std::size_t some) {
    if (some >= lanes) return weights_at<format>(row, i);
    constexpr std::size_t size = format == 0 ? 4 : 2;
    std::uint8_t bits[64] = {};
    __builtin_memcpy(bits, row + size * i, size * some);
    return weights_at<format>(bits, 0);
}

// Half of the lanes (16 of 32) of a segment's products: lane sums of `weight_rows` weights with R rows of x.
template <int format, int R>
STRATA_OP void half_lanes(const std::uint8_t* const* w, const float* const* x, std::size_t start, std::size_t end,
                          Floats sums[weight_rows][R]) {
    STRATA_UNROLL for (int n = 0; n < weight_rows; ++n)
        STRATA_UNROLL for (int r = 0; r < R; ++r) sums[n][r] = zero_floats();
    const auto step = [&](std::size_t i, auto from_x, auto from_w) {
        Floats row[R];
        STRATA_UNROLL for (int r = 0; r < R; ++r) row[r] = from_x(x[r], i);
        STRATA_UNROLL for (int n = 0; n < weight_rows; ++n) {
            const Floats weight = from_w(w[n], i);
            STRATA_UNROLL for (int r = 0; r < R; ++r) sums[n][r] = add(sums[n][r], mul(row[r], weight));
        }
    };
    std::size_t i = start;
    for (; i + lanes <= end; i += half_step)
        step(i, [](const float* p, std::size_t at) { return load_floats(p + at); },
             [](const std::uint8_t* p, std::size_t at) { return weights_at<format>(p, at); });
    if (i < end)
        step(i, [=](const float* p, std::size_t at) { return load_some(p + at, end - at); },
             [=](const std::uint8_t* p, std::size_t at) { return weights_up_to<format>(p, at, end - at); });
}

// One tile of weights times R rows of x.
template <int format, int R>
__attribute__((noinline)) void float_tile(const std::uint8_t* const w[tile_rows], const float* const x[R], std::size_t k,
                                          float* const y[R], std::size_t used) {
    Tree<R> tree;
    Floats of_lanes[R][tile_rows];
    for (auto& row : of_lanes)
        for (Floats& v : row) v = zero_floats();
    for (std::size_t start = 0; start < k; start += segment) {
        const std::size_t end = k - start < segment ? k : start + segment;
        Floats sum[R];
        for (Floats& v : sum) v = zero_floats();  // the halves' sums are never -0, so this adds nothing
        for (std::size_t half = 0; half < 2; ++half) {
            for (std::size_t n = 0; n < used; n += weight_rows) {
                Floats sums[weight_rows][R];
                half_lanes<format, R>(w + n, x, start + half * lanes, end, sums);
                STRATA_UNROLL for (int m = 0; m < weight_rows; ++m)
                    STRATA_UNROLL for (int r = 0; r < R; ++r) of_lanes[r][n + std::size_t(m)] = sums[m][r];
            }
            STRATA_UNROLL for (int r = 0; r < R; ++r) sum[r] = add(sum[r], sixteen_trees(of_lanes[r]));
        }
        tree.push(sum, 0);
    }
    Floats total[R];
    tree.finish(total);
    for (int r = 0; r < R; ++r) store_up_to(y[r], total[r], used);
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
