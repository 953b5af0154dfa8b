// The kernel of many rows with vector instructions: a few rows and one or two unpacked tiles at a time.
#pragma once
#include "chunk_sums.h"

namespace strata {
namespace STRATA_ISA {
namespace {

template <class W, int tiles, int rows, int from, int count>
STRATA_OP void dots_of_rows(const std::uint8_t* w, const Record* x, int sum, std::size_t tile_bytes, Ints acc[tiles][rows]) {
    STRATA_UNROLL for (int r = 0; r < rows; ++r)
        STRATA_UNROLL for (int t = 0; t < tiles; ++t) acc[t][r] = start<W>(x[r].minus_sum[sum]);
    STRATA_UNROLL for (int i = from; i < from + count; ++i) {
        Bytes codes[tiles];
        STRATA_UNROLL for (int t = 0; t < tiles; ++t) codes[t] = load_bytes(w + t * tile_bytes + 64 * i);
        STRATA_UNROLL for (int r = 0; r < rows; ++r)
            STRATA_UNROLL for (int t = 0; t < tiles; ++t)
                acc[t][r] = W::big ? dot_big(acc[t][r], codes[t], word_at(x[r].q + 4 * i))
                                   : dot(acc[t][r], codes[t], word_at(x[r].q + 4 * i));
    }
}

// One block of all rows: their dots side by side, which hides the latency of each.
template <class W, int tiles, int rows>
STRATA_OP void add_wide_block(const std::uint8_t* w, std::size_t tile_bytes, const Record* x, Floats p[tiles][rows]) {
    Ints acc[tiles][rows];
    if constexpr (!W::two_dots) {
        dots_of_rows<W, tiles, rows, 0, 8>(w, x, 2, tile_bytes, acc);
        STRATA_UNROLL for (int r = 0; r < rows; ++r)
            STRATA_UNROLL for (int t = 0; t < tiles; ++t) {
                const std::uint8_t* at = w + t * tile_bytes;
                Floats isum = to_floats(acc[t][r]);
                if constexpr (W::sub == Sub::block) isum = mul(isum, W::sub_scale(at, 0));
                p[t][r] = plus_term<W>(p[t][r], isum, at, x[r]);
            }
        return;
    }
    dots_of_rows<W, tiles, rows, 0, 4>(w, x, 0, tile_bytes, acc);
    Floats first[tiles][rows];
    STRATA_UNROLL for (int r = 0; r < rows; ++r)
        STRATA_UNROLL for (int t = 0; t < tiles; ++t) {
            const std::uint8_t* at = w + t * tile_bytes;
            if constexpr (W::two_scales)
                p[t][r] = add(p[t][r], mul(to_floats(acc[t][r]), mul(W::scale(at, 0), all_floats(x[r].scale))));
            else
                first[t][r] = mul(to_floats(acc[t][r]), W::sub_scale(at, 0));
        }
    dots_of_rows<W, tiles, rows, 4, 4>(w, x, 1, tile_bytes, acc);
    STRATA_UNROLL for (int r = 0; r < rows; ++r)
        STRATA_UNROLL for (int t = 0; t < tiles; ++t) {
            const std::uint8_t* at = w + t * tile_bytes;
            const Floats second = to_floats(acc[t][r]);
            if constexpr (W::two_scales)
                p[t][r] = add(p[t][r], mul(second, mul(W::scale(at, 1), all_floats(x[r].scale))));
            else
                p[t][r] = plus_term<W>(p[t][r], mul_add_exact(second, W::sub_scale(at, 1), first[t][r]), at, x[r]);
        }
}

template <int tiles, int rows>
STRATA_OP void start_segment(Floats p[tiles][rows]) {
    STRATA_UNROLL for (int r = 0; r < rows; ++r)
        STRATA_UNROLL for (int t = 0; t < tiles; ++t) p[t][r] = zero_floats();
}

// Rows `row`..+rows of the panel x (block after block, the records of its rows) times a chunk of `blocks` blocks.
template <class W, int tiles, int rows>
__attribute__((noinline)) void chunk_product(const std::uint8_t* w, std::size_t blocks, const Record* x, const Node& node,
                                             std::size_t row, const Target& out) {
    Sums<tiles, rows> sums;
    fetch_results<tiles>(node, row, rows, out);
    for (std::size_t segment = 0; segment * 4 < blocks; ++segment) {
        Floats p[tiles][rows];
        start_segment<tiles, rows>(p);
        const std::size_t left = blocks - segment * 4, some = left < 4 ? left : 4;
        for (std::size_t b = 0; b < some; ++b) {
            add_wide_block<W, tiles, rows>(w, chunk * W::stride, x, p);
            w += W::stride;
            x += rows;
        }
        sums.keep(segment, p);
    }
    sums.finish(blocks, node, row, rows, out);
}

template <class F, int tiles, int rows, int b>
STRATA_OP void widen_and_add(const std::uint8_t* const group[tiles], std::size_t nb, std::uint8_t* wide, const Record* x,
                             Floats p[tiles][rows]) {
    using W = Wide<F>;
    if (nb <= b) return;
    STRATA_UNROLL for (int t = 0; t < tiles; ++t) widen_block<F, b>(group[t], nb, wide + (t * chunk + b) * W::stride);
    add_wide_block<W, tiles, rows>(wide + b * W::stride, chunk * W::stride, x + b * rows, p);
    if constexpr (b % 4 < 3) widen_and_add<F, tiles, rows, b + 1>(group, nb, wide, x, p);
}

// The same for the first rows of a chunk, which unpack it: block after block, so that stores and dots overlap.
template <class F, int tiles, int rows>
__attribute__((noinline)) void first_chunk_product(const std::uint8_t* const tile[tiles], const std::uint8_t* const next[tiles],
                                                   std::size_t blocks, std::uint8_t* wide, const Record* x,
                                                   const Node& node, const Target& out) {
    Sums<tiles, rows> sums;
    const std::uint8_t* group[tiles];
    STRATA_UNROLL for (int t = 0; t < tiles; ++t) group[t] = tile[t];
    for (std::size_t at = 0; at < blocks; at += F::blocks) {
        const std::size_t nb = blocks - at < F::blocks ? blocks - at : F::blocks, bytes = F::group_bytes(nb);
        Floats p[tiles][rows];
        start_segment<tiles, rows>(p);
        widen_and_add<F, tiles, rows, 0>(group, nb, wide, x, p);
        sums.keep(at / 4, p);
        if constexpr (F::blocks == 8)
            if (nb > 4) {
                start_segment<tiles, rows>(p);
                widen_and_add<F, tiles, rows, 4>(group, nb, wide, x, p);
                sums.keep(at / 4 + 1, p);
            }
        STRATA_UNROLL for (int t = 0; t < tiles; ++t) {
            for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(next[t] + (group[t] - tile[t]) + i, 0, 2);
            group[t] += bytes;
        }
        wide += nb * Wide<F>::stride;
        x += nb * rows;
    }
    sums.finish(blocks, node, 0, rows, out);
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
