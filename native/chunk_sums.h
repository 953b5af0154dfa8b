// What the kernels of many rows share: the sums of a chunk of K, and where they go.
#pragma once
#include "wide_tile.h"

namespace strata {
namespace STRATA_ISA {
namespace {

constexpr std::size_t chunk = 16;  // blocks: four segments, a whole node of the tree

// What a chunk's sums merge with, row after row: nodes of the tree that were kept (`lower`), one bit a level; then they
// are kept at level `to`, or are the result where it is negative. As the tree over all segments would add them: padding
// with +0 changes no bit, since a segment's sum is never -0.
struct Node {
    float* kept;  // [level][row][tile][16]
    std::size_t level_floats;
    unsigned lower;
    int to;
};

struct Target {
    float* y;
    std::size_t stride;
    std::size_t lanes[2];  // columns of each tile that exist; 0: none
};

// p plus the term of one block, docs/arithmetic.md, section 3; isum is the dot, sub-scales included.
template <class W>
STRATA_OP Floats plus_term(Floats p, Floats isum, const std::uint8_t* w, const Record& x) {
    const Floats da = all_floats(x.scale);
    Floats t = mul(isum, mul(W::scale(w, 0), da));
    if constexpr (W::min != Min::none) {
        Floats imin;
        if constexpr (W::min == Min::one) imin = all_floats(x.sum[2]);
        else imin = to_floats(dot_pairs(W::minimum(w), x.sums));
        t = sub(t, mul(imin, mul(W::dmin(w), da)));
    }
    return add(p, t);
}

template <int tiles, int rows>
STRATA_OP void merge_and_store(Floats sum[tiles][rows], const Node& node, std::size_t row, std::size_t count,
                               const Target& out) {
    STRATA_UNROLL for (int r = 0; r < rows; ++r)
        STRATA_UNROLL for (int t = 0; t < tiles; ++t) {
            if (std::size_t(r) >= count) return;
            Floats v = sum[t][r];
            float* kept = node.kept + ((row + r) * tiles + t) * 16;
            for (unsigned left = node.lower; left; left &= left - 1)
                v = add(load_floats(kept + __builtin_ctz(left) * node.level_floats), v);
            float* y = out.y + (row + r) * out.stride + t * tile_rows;
            if (node.to >= 0) store_floats(kept + node.to * node.level_floats, v);
            else if (out.lanes[t] == tile_rows) store_floats(y, v);
            else if (out.lanes[t]) store_some(y, v, out.lanes[t]);
        }
}

// The lines of y that a last chunk writes, early: rows lie pages apart.
template <int tiles>
STRATA_OP void fetch_results(const Node& node, std::size_t row, std::size_t rows, const Target& out) {
    if (node.to >= 0) return;
    for (std::size_t r = 0; r < rows; ++r)
        for (int t = 0; t < tiles; ++t) __builtin_prefetch(out.y + (row + r) * out.stride + t * tile_rows, 1);
}

// The sums of a chunk's segments, added as a tree.
template <int tiles, int rows>
struct Sums {
    Floats kept[2][tiles][rows];

    STRATA_MEMBER void keep(std::size_t segment, std::size_t t, const Floats p[rows]) {
        STRATA_UNROLL for (int r = 0; r < rows; ++r) {
            Floats& at = kept[segment / 2][t][r];
            at = segment % 2 ? add(at, p[r]) : p[r];
        }
    }
    STRATA_MEMBER void keep(std::size_t segment, const Floats p[tiles][rows]) {
        STRATA_UNROLL for (int t = 0; t < tiles; ++t) keep(segment, std::size_t(t), p[t]);
    }

    // Of the rows `row`..+count.
    STRATA_MEMBER void finish(std::size_t blocks, const Node& node, std::size_t row, std::size_t count,
                              const Target& out) const {
        Floats sum[tiles][rows];
        STRATA_UNROLL for (int r = 0; r < rows; ++r)
            STRATA_UNROLL for (int t = 0; t < tiles; ++t)
                sum[t][r] = blocks > 8 ? add(kept[0][t][r], kept[1][t][r]) : kept[0][t][r];
        merge_and_store<tiles, rows>(sum, node, row, count, out);
    }
};

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
