// The kernel of many rows on AMX: an unpacked block of a weight tile is a tile register of eight rows as it lies, and
// sixteen rows of a panel are another, so that one instruction makes the dots of a block; the floats follow in the order
// of every other kernel. For native/many_rows.h.
#pragma once
#include "amx_tiles.h"
#include "chunk_sums.h"

namespace strata {
namespace STRATA_ISA {
namespace {

constexpr int dots_ahead = 1;  // blocks whose dots are under way while the floats of one are computed

template <class W>
struct DotRing {
    static constexpr int halves = W::two_dots ? 2 : 1, size = 2;
    alignas(64) std::int32_t sums[size][halves][amx_rows][16];
};

// A place among the blocks of a chunk: a segment of the first tile, the same of the second, the next segment.
template <class W, int tiles>
struct Cursor {
    std::size_t blocks, segment, tile, b;

    STRATA_MEMBER std::size_t count() const {
        const std::size_t left = blocks - segment * 4;
        return left < 4 ? left : 4;
    }
    STRATA_MEMBER bool over() const { return segment * 4 >= blocks; }
    STRATA_MEMBER void next() {
        if (++b < count()) return;
        b = 0;
        if (++tile < tiles) return;
        tile = 0;
        ++segment;
    }
    STRATA_MEMBER const std::uint8_t* weights(const std::uint8_t* wide) const {
        return wide + (tile * chunk + segment * 4 + b) * W::stride;
    }
    STRATA_MEMBER const Record* rows(const Record* panel) const { return panel + (segment * 4 + b) * amx_rows; }
};

template <int sums, int half>
STRATA_OP void half_dots(const std::uint8_t* w, const Record* x, std::int32_t* out) {
    amx_load<a_half>(x->q + 16 * half, sizeof(Record));
    amx_load<b_half>(w + 256 * half, 64);
    amx_zero<sums>();
    amx_dot<sums, a_half, b_half>();
    amx_store<sums>(out, 64);
}

template <class W, int parity>
STRATA_OP void block_dots(const std::uint8_t* w, const Record* x, std::int32_t (*out)[amx_rows][16]) {
    constexpr int sums = sums_first + 2 * parity;
    if constexpr (W::two_dots) {
        half_dots<sums, 0>(w, x, out[0][0]);
        half_dots<sums + 1, 1>(w, x, out[1][0]);
    } else {
        amx_load<a_block>(x->q, sizeof(Record));
        amx_load<b_block>(w, 64);
        amx_zero<sums>();
        amx_dot<sums, a_block, b_block>();
        amx_store<sums>(out[0][0], 64);
    }
}

template <class W, int tiles>
STRATA_OP void start_dots(Cursor<W, tiles>& to, std::size_t number, const std::uint8_t* wide, const Record* panel,
                          DotRing<W>& ring) {
    if (to.over()) return;
    auto* out = ring.sums[number % DotRing<W>::size];
    if (number % 2) block_dots<W, 1>(to.weights(wide), to.rows(panel), out);
    else block_dots<W, 0>(to.weights(wide), to.rows(panel), out);
    to.next();
}

template <class W, int rows>
STRATA_OP void add_block_floats(const std::int32_t (*sums)[amx_rows][16], const std::uint8_t* w, const Record* x,
                                Floats p[rows]) {
    STRATA_UNROLL for (int r = 0; r < rows; ++r) {
        Floats first = to_floats(load_bytes(sums[0][r]));
        if constexpr (W::two_dots) {
            const Floats second = to_floats(load_bytes(sums[1][r]));
            if constexpr (W::two_scales) {
                const Floats da = all_floats(x[r].scale);
                p[r] = add(p[r], mul(first, mul(W::scale(w, 0), da)));
                p[r] = add(p[r], mul(second, mul(W::scale(w, 1), da)));
                continue;
            }
            first = mul_add_exact(second, W::sub_scale(w, 1), mul(first, W::sub_scale(w, 0)));
        } else if constexpr (W::sub == Sub::block) {
            first = mul(first, W::sub_scale(w, 0));
        }
        p[r] = plus_term<W>(p[r], first, w, x[r]);
    }
}

// Like chunk_product, for `count` <= rows rows; the panel's group has sixteen places for them.
template <class W, int tiles, int rows>
__attribute__((noinline)) void amx_chunk_product(const std::uint8_t* wide, std::size_t blocks, const Record* panel,
                                                 const Node& node, std::size_t row, std::size_t count, const Target& out) {
    Sums<tiles, rows> sums;
    DotRing<W> ring;
    Cursor<W, tiles> started{blocks, 0, 0, 0}, at = started;
    std::size_t number = 0;
    for (; number < dots_ahead; ++number) start_dots<W, tiles>(started, number, wide, panel, ring);
    while (!at.over()) {
        Floats p[rows];
        const std::size_t segment = at.segment, tile = at.tile;
        STRATA_UNROLL for (int r = 0; r < rows; ++r) p[r] = zero_floats();
        for (std::size_t left = at.count(); left > 0; --left, ++number) {
            start_dots<W, tiles>(started, number, wide, panel, ring);
            add_block_floats<W, rows>(ring.sums[(number - dots_ahead) % DotRing<W>::size], at.weights(wide), at.rows(panel), p);
            at.next();
        }
        sums.keep(segment, tile, p);
    }
    sums.finish(blocks, node, row, count, out);
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
