// Many rows times tiles, for any format: a chunk of K of one or two tiles is unpacked into the first cache and passed over
// by all rows, a few at a time. Rows come as panels, so that one address serves those of a group.
#pragma once
#if defined(STRATA_ISA_AMX)
#include "many_rows_amx.h"
#else
#include "many_rows_simd.h"
#endif

namespace strata {
namespace STRATA_ISA {
namespace {

// How many rows a kernel takes. Vectors: registers hold a dot and a sum of each (and the first half's dot).
template <class W>
constexpr std::size_t rows_at_once = amx_dots ? 16 : !wide_registers ? 4 : W::two_dots ? 4 : 6;
constexpr std::size_t tiles_at_once = wide_registers ? 2 : 1;

// Rows go in groups: the first one may be `leading` rows that unpack for the others; those are as even as can be, so that
// from many rows on only rows_at_once, one and two less occur (AMX: from 8 to 16).
constexpr std::size_t leading = wide_registers && !amx_dots ? 4 : 0;

struct Groups {
    std::size_t count, rows;
    std::size_t start(std::size_t i) const { return leading + rows * i / count; }
    std::size_t rows_of(std::size_t i) const { return start(i + 1) - start(i); }
    // Where group i lies in a panel, in records a block: a tile register takes sixteen rows, there or not.
    std::size_t place(std::size_t i) const { return amx_dots ? 16 * i : start(i); }
};

template <class W>
STRATA_OP Groups groups_of(std::size_t rows) {
    return {(rows - leading + rows_at_once<W> - 1) / rows_at_once<W>, rows - leading};
}

#if defined(STRATA_ISA_AMX)
template <class W, int tiles>
STRATA_OP void product_of_group(std::size_t rows, const std::uint8_t* wide, std::size_t blocks, const Record* x,
                                const Node& node, std::size_t row, const Target& out) {
    if (rows > 12) amx_chunk_product<W, tiles, 16>(wide, blocks, x, node, row, rows, out);
    else if (rows > 8) amx_chunk_product<W, tiles, 12>(wide, blocks, x, node, row, rows, out);
    else amx_chunk_product<W, tiles, 8>(wide, blocks, x, node, row, rows, out);
}
#else
template <class W, int tiles>
STRATA_OP void product_of_group(std::size_t rows, const std::uint8_t* wide, std::size_t blocks, const Record* x,
                                const Node& node, std::size_t row, const Target& out) {
    constexpr int most = rows_at_once<W>;
    if (rows == most) chunk_product<W, tiles, most>(wide, blocks, x, node, row, out);
    else if (rows == most - 1) chunk_product<W, tiles, most - 1>(wide, blocks, x, node, row, out);
    else if constexpr (most > 4) chunk_product<W, tiles, most - 2>(wide, blocks, x, node, row, out);
}
#endif

// Rows first..+count as a group of a panel: block after block, the rows' records side by side, the last one again in
// places that are left over.
template <class F>
STRATA_OP void fill_group(const Activations& a, const std::uint32_t* row_index, std::size_t first, std::size_t count,
                          Record* panel) {
    const std::size_t places = amx_dots ? 16 : count;
    for (std::size_t r = 0; r < places; ++r) {
        const std::size_t i = first + (r < count ? r : count - 1), row = row_index ? row_index[i] : i;
        const Record* from = a.records + row * a.stride;
        const std::int8_t* q = a.transposed + row * a.stride * block;
        Record* to = panel + r;
        for (std::size_t b = 0; b < a.blocks; ++b, to += places) {
            store_bytes(to, load_bytes(from + b));
            if (F::transposed) __builtin_memcpy(to->q, q + b * block, block);
        }
    }
}

template <class F>
void fill_panel(const Activations& a, const std::uint32_t* row_index, std::size_t first, std::size_t rows, Record* panel) {
    const Groups groups = groups_of<Wide<F>>(rows);
    if (leading) fill_group<F>(a, row_index, first, leading, panel);
    for (std::size_t g = 0; g < groups.count; ++g)
        fill_group<F>(a, row_index, first + groups.start(g), groups.rows_of(g), panel + groups.place(g) * a.blocks);
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
#if !defined(STRATA_ISA_AMX)
        if constexpr (leading > 0)
            first_chunk_product<F, tiles, leading>(from, then, blocks, wide, panel + at * leading, node, out);
        else
#endif
            for (int t = 0; t < tiles; ++t) widen<F>(from[t], blocks, wide + t * chunk * W::stride, then[t]);
        for (std::size_t g = 0; g < groups.count; ++g) {
            const std::size_t count = groups.rows_of(g), places = amx_dots ? 16 : count;
            product_of_group<W, tiles>(count, wide, blocks, panel + groups.place(g) * all_blocks + at * places, node,
                                       groups.start(g), out);
        }
    }
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
