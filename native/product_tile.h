// One tile (16 weight rows, a lane each) times a few rows, for any format: what the product files of native/kernels share.
//
// A format is a struct F:
//   traits      derived from `Traits`, see there
//   blocks      blocks of 32 in a group: 4, or 8 where the file's block is 256. A tile is a run of groups; only the last
//               one of a row may be shorter (nb < blocks)
//   group_bytes(nb)
//   codes<b>(group, w)        the 32 codes of block b for all lanes: w[0..3] the first 16, w[4..7] the others;
//                             byte p of lane r in w[i] is element 4 i + p of row r (`transposed`: see quantize.cpp)
//   scales<b>(group, nb, s)
//   file_bytes(nb), pack(rows, at, nb, group)   sixteen rows of the file, from byte `at` on, to a group
//
// Most layouts are the file's own quant bytes, transposed in 32-bit words, so that packing is cheap.
#pragma once
#include "kernels.h"
#include "simd.h"

namespace strata {
namespace STRATA_ISA {
namespace {

enum class Sub { none, block, half };       // integer sub-scales: none, one a 32, one a 16
enum class Min { none, one, block, half };  // minimums: none, always 1, one a 32, one a 16

// offset: the code of 0 is 2^offset (-1: it is 0). Offsets of 7 go with codes above 127.
// two_scales: an fp32 scale a 16 (NVFP4). transposed: the order of Activations::transposed.
template <int offset_, Sub sub_ = Sub::none, Min min_ = Min::none, bool transposed_ = false, bool two_scales_ = false>
struct Traits {
    static constexpr int offset = offset_;
    static constexpr bool big = offset_ == 7;
    static constexpr Sub sub = sub_;
    static constexpr Min min = min_;
    static constexpr bool transposed = transposed_, two_scales = two_scales_;
    static constexpr bool two_dots = sub_ == Sub::half || two_scales_;
};

struct Scales {
    Floats d[2], sub[2], minimum[2], dmin;
};

template <int rows>
struct Pointers {
    const Record* record[rows];
    const std::int8_t* transposed[rows];
};

template <class F>
STRATA_OP Ints start(const std::int32_t& minus_sum) {
    if constexpr (F::offset < 0 || (F::big && !offset_dots)) return zero_ints();
    else if constexpr (F::big) return all_ints(minus_sum);
    else return right_arithmetic<7 - F::offset>(all_ints(minus_sum));
}

template <class F, int count>
STRATA_OP Ints dots(Ints acc, const Bytes* w, const std::int8_t* q) {
    STRATA_UNROLL for (int i = 0; i < count; ++i)
        acc = F::big ? dot_big(acc, w[i], word_at(q + 4 * i)) : dot(acc, w[i], word_at(q + 4 * i));
    return acc;
}

// p plus the term (NVFP4: the two terms) of one block; docs/arithmetic.md, section 3.
template <class F>
STRATA_OP Floats add_term(Floats p, const Bytes w[8], const Scales& s, const Record& r, const std::int8_t* q) {
    const Floats da = all_floats(r.scale);
    if constexpr (F::two_scales) {
        const Floats first = to_floats(dots<F, 4>(start<F>(r.minus_sum[0]), w, q));
        const Floats second = to_floats(dots<F, 4>(start<F>(r.minus_sum[1]), w + 4, q + 16));
        p = add(p, mul(first, mul(s.d[0], da)));
        return add(p, mul(second, mul(s.d[1], da)));
    } else {
        Floats isum;
        if constexpr (F::two_dots) {
            const Floats first = to_floats(dots<F, 4>(start<F>(r.minus_sum[0]), w, q));
            const Floats second = to_floats(dots<F, 4>(start<F>(r.minus_sum[1]), w + 4, q + 16));
            isum = mul_add_exact(second, s.sub[1], mul(first, s.sub[0]));
        } else {
            isum = to_floats(dots<F, 8>(start<F>(r.minus_sum[2]), w, q));
            if constexpr (F::sub == Sub::block) isum = mul(isum, s.sub[0]);
        }
        Floats t = mul(isum, mul(s.d[0], da));
        if constexpr (F::min != Min::none) {
            Floats imin;
            if constexpr (F::min == Min::one) imin = all_floats(r.sum[2]);
            if constexpr (F::min == Min::block) imin = mul(s.minimum[0], all_floats(r.sum[2]));
            if constexpr (F::min == Min::half)
                imin = mul_add_exact(s.minimum[1], all_floats(r.sum[1]), mul(s.minimum[0], all_floats(r.sum[0])));
            t = sub(t, mul(imin, mul(s.dmin, da)));
        }
        return add(p, t);
    }
}

// Bytes between a block and those that are fetched meanwhile; measured. A group of 256 is read in several places at once.
template <class F>
constexpr std::size_t ahead = F::blocks == 8 ? 2048 : 5120;

// Ask for block b's share of the lines that lie `ahead`: the machine's own prefetching follows a plain run only.
template <class F, int b>
STRATA_OP void prefetch_block(const std::uint8_t* group) {
    constexpr std::size_t bytes = F::group_bytes(F::blocks), first = b * bytes / F::blocks, last = (b + 1) * bytes / F::blocks;
    STRATA_UNROLL for (std::size_t line = (first + 63) / 64 * 64; line < last; line += 64)
        __builtin_prefetch(group + ahead<F> + line);
}

template <class F, int b, int rows>
STRATA_OP void add_block(const std::uint8_t* group, std::size_t nb, const Pointers<rows>& x, std::size_t at,
                         Floats p[rows]) {
    Bytes w[8];
    Scales s;
    prefetch_block<F, b>(group);
    F::template codes<b>(group, w);
    F::template scales<b>(group, nb, s);
    STRATA_UNROLL for (int r = 0; r < rows; ++r) {
        const Record& record = x.record[r][at];
        p[r] = add_term<F>(p[r], w, s, record, F::transposed ? x.transposed[r] + at * block : record.q);
    }
}

// Segments in order of arrival, added as the tree over all of them would: segment s merges with what lies on the levels
// of its trailing one bits. Padding with +0 changes no bit, since a segment's sum is never -0.
template <int rows>
struct Segments {
    static constexpr int levels = 16;  // max_k / 128 segments at most
    Floats level[levels][rows];
    std::size_t count = 0;

    STRATA_MEMBER void push(const Floats p[rows]) {
        int at = 0;
        for (std::size_t left = count; left & 1; left >>= 1) ++at;
        STRATA_UNROLL for (int r = 0; r < rows; ++r) {
            Floats sum = p[r];
            for (int i = 0; i < at; ++i) sum = add(level[i][r], sum);
            level[at][r] = sum;
        }
        ++count;
    }

    STRATA_MEMBER Floats total(int r) const {
        int at = 0;
        while (!(count >> at & 1)) ++at;
        Floats sum = level[at][r];
        for (++at; count >> at; ++at)
            if (count >> at & 1) sum = add(level[at][r], sum);
        return sum;
    }
};

template <class F, int b, int rows>
STRATA_OP void add_segment(const std::uint8_t* group, std::size_t nb, const Pointers<rows>& x, std::size_t at,
                           Segments<rows>& segments) {
    Floats p[rows];
    STRATA_UNROLL for (int r = 0; r < rows; ++r) p[r] = zero_floats();
    add_block<F, b, rows>(group, nb, x, at, p);
    if (nb > b + 1) add_block<F, b + 1, rows>(group, nb, x, at + 1, p);
    if (nb > b + 2) add_block<F, b + 2, rows>(group, nb, x, at + 2, p);
    if (nb > b + 3) add_block<F, b + 3, rows>(group, nb, x, at + 3, p);
    segments.push(p);
}

struct Output {
    float* y;
    std::size_t stride, lanes;  // lanes: columns of this tile that exist
};

template <class F, int rows>
__attribute__((noinline)) void tile_product(const std::uint8_t* tile, std::size_t blocks, const Pointers<rows>& x,
                                            const Output& out) {
    Segments<rows> segments;
    for (std::size_t at = 0; at < blocks; at += F::blocks) {
        const std::size_t nb = blocks - at < F::blocks ? blocks - at : F::blocks;
        add_segment<F, 0, rows>(tile, nb, x, at, segments);
        if constexpr (F::blocks == 8) add_segment<F, 4, rows>(tile, nb, x, at + 4, segments);
        tile += F::group_bytes(nb);
    }
    STRATA_UNROLL for (int r = 0; r < rows; ++r) {
        float* y = out.y + r * out.stride;
        if (out.lanes == tile_rows) store_floats(y, segments.total(r));
        else store_some(y, segments.total(r), out.lanes);
    }
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
