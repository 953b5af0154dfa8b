// Many rows times tiles, for any format: a chunk of K of two tiles is unpacked into the first cache and passed over by all
// rows, a few at a time. Rows come as panels, so that one address serves them all.
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
STRATA_OP void merge_and_store(Floats sum[tiles][rows], const Node& node, std::size_t row, const Target& out) {
    STRATA_UNROLL for (int r = 0; r < rows; ++r)
        STRATA_UNROLL for (int t = 0; t < tiles; ++t) {
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

// The sums of a chunk's segments, added as a tree.
template <int tiles, int rows>
struct Sums {
    Floats kept[2][tiles][rows];

    STRATA_MEMBER void keep(std::size_t segment, const Floats p[tiles][rows]) {
        STRATA_UNROLL for (int r = 0; r < rows; ++r)
            STRATA_UNROLL for (int t = 0; t < tiles; ++t) {
                Floats& at = kept[segment / 2][t][r];
                at = segment % 2 ? add(at, p[t][r]) : p[t][r];
            }
    }

    STRATA_MEMBER void finish(std::size_t blocks, const Node& node, std::size_t row, const Target& out) const {
        Floats sum[tiles][rows];
        STRATA_UNROLL for (int r = 0; r < rows; ++r)
            STRATA_UNROLL for (int t = 0; t < tiles; ++t)
                sum[t][r] = blocks > 8 ? add(kept[0][t][r], kept[1][t][r]) : kept[0][t][r];
        merge_and_store<tiles, rows>(sum, node, row, out);
    }
};

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
    sums.finish(blocks, node, row, out);
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
    sums.finish(blocks, node, 0, out);
}

// How many rows a kernel takes: registers hold a dot and a sum of each (and the first half's dot).
template <class W>
constexpr std::size_t rows_at_once = wide_registers ? (W::two_dots && !W::two_scales ? 4 : 6) : 4;
constexpr std::size_t tiles_at_once = wide_registers ? 2 : 1;

// Rows go in groups: the first one may be `leading` rows that unpack for the others; those are as even as can be, so that
// from many rows on only rows_at_once, one and two less occur.
constexpr std::size_t leading = wide_registers ? 4 : 0;

struct Groups {
    std::size_t count, rows;
    std::size_t start(std::size_t i) const { return leading + rows * i / count; }
};

template <class W>
STRATA_OP Groups groups_of(std::size_t rows) {
    return {(rows - leading + rows_at_once<W> - 1) / rows_at_once<W>, rows - leading};
}

template <class W, int tiles, int most>
STRATA_OP void product_of_group(std::size_t rows, const std::uint8_t* wide, std::size_t blocks, const Record* x,
                                const Node& node, std::size_t row, const Target& out) {
    if (rows == most) chunk_product<W, tiles, most>(wide, blocks, x, node, row, out);
    else if (rows == most - 1) chunk_product<W, tiles, most - 1>(wide, blocks, x, node, row, out);
    else if constexpr (most > 4) chunk_product<W, tiles, most - 2>(wide, blocks, x, node, row, out);
}

// Rows first..+count as a group of a panel: block after block, the rows' records side by side.
template <class F>
STRATA_OP void fill_group(const Activations& a, const std::uint32_t* row_index, std::size_t first, std::size_t count,
                          Record* panel) {
    for (std::size_t r = 0; r < count; ++r) {
        const std::size_t row = row_index ? row_index[first + r] : first + r;
        const Record* from = a.records + row * a.stride;
        const std::int8_t* q = a.transposed + row * a.stride * block;
        Record* to = panel + r;
        for (std::size_t b = 0; b < a.blocks; ++b, to += count) {
            store_bytes(to, load_bytes(from + b));
            if (F::transposed) __builtin_memcpy(to->q, q + b * block, block);
        }
    }
}

template <class F>
void fill_panel(const Activations& a, const std::uint32_t* row_index, std::size_t first, std::size_t rows, Record* panel) {
    const Groups groups = groups_of<Wide<F>>(rows);
    if (leading) fill_group<F>(a, row_index, first, leading, panel);
    for (std::size_t g = 0; g < groups.count; ++g) {
        const std::size_t begin = groups.start(g);
        fill_group<F>(a, row_index, first + begin, groups.start(g + 1) - begin, panel + begin * a.blocks);
    }
}

template <class F, int tiles>
void many_rows(const std::uint8_t* const tile[tiles], const std::uint8_t* const next[tiles], std::size_t all_blocks,
               const Record* panel, std::size_t rows, std::uint8_t* wide, float* kept, const Target& out) {
    using W = Wide<F>;
    const Groups groups = groups_of<W>(rows);
    const std::size_t chunk_bytes = chunk / F::blocks * F::group_bytes(F::blocks);
    Node node{kept, rows * tiles * 16, 0, 0};
    for (std::size_t at = 0, c = 0; at < all_blocks; at += chunk, ++c) {
        const bool last = at + chunk >= all_blocks;
        const std::size_t blocks = last ? all_blocks - at : chunk;
        const std::uint8_t *from[tiles], *then[tiles];
        for (int t = 0; t < tiles; ++t) {
            from[t] = tile[t] + c * chunk_bytes;
            then[t] = last ? next[t] : from[t] + chunk_bytes;
        }
        const unsigned done = static_cast<unsigned>(c);
        node.to = last ? -1 : __builtin_ctz(~done);
        node.lower = last ? done : done & ((1u << node.to) - 1);
        if constexpr (leading > 0)
            first_chunk_product<F, tiles, leading>(from, then, blocks, wide, panel + at * leading, node, out);
        else
            for (int t = 0; t < tiles; ++t) widen<F>(from[t], blocks, wide + t * chunk * W::stride, then[t]);
        for (std::size_t g = 0; g < groups.count; ++g) {
            const std::size_t begin = groups.start(g), count = groups.start(g + 1) - begin;
            product_of_group<W, tiles, rows_at_once<W>>(count, wide, blocks, panel + begin * all_blocks + at * count, node,
                                                        begin, out);
        }
    }
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
