// Attention over one block of at most 64 keys, for the query heads that share a key head; docs/arithmetic.md, section 10.
#include "float_tile.h"

namespace strata {
namespace STRATA_ISA {
namespace {

constexpr float minus_infinity = -__builtin_inff();
constexpr std::size_t block_keys = strata::attend_block;

template <int n>
struct Count {
    static constexpr int value = n;
};

STRATA_OP Floats widened(const std::uint8_t* row, std::size_t i, std::size_t some, int format) {
    if (format == 0) return load_up_to(reinterpret_cast<const float*>(row) + i, some);
    std::uint8_t bits[32] = {};
    const std::uint8_t* at = row + 2 * i;
    if (some < lanes) {
        __builtin_memcpy(bits, at, 2 * some);
        at = bits;
    }
    return format == 30 ? bfloats_at(at) : halves_at(at);
}

void attend_start(const AttendWork& work) {
    for (std::size_t h = 0; h < work.heads; ++h) {
        work.top[h] = minus_infinity;
        work.total[h] = 0.0f;
    }
    for (std::size_t i = 0; i < work.heads * work.dim; ++i) work.weighted[i] = 0.0f;
}

// The larger one, NaN if one is NaN: numpy's maximum.
STRATA_OP float maximum(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }

// total of one head: p of the scores, in place, and the factor by which the earlier sums shrink.
STRATA_OP float weigh(const AttendWork& work, std::size_t h, float* scores, std::size_t count) {
    constexpr std::size_t vectors = block_keys / lanes;
    static_assert(vectors == 4);
    Floats x[vectors];
    float tops[lanes];
    Floats top_of = all_floats(work.top[h]);
    std::uint32_t magnitude = top_magnitude(top_of, top_of);
    for (std::size_t i = 0; i < count; i += lanes) {
        Floats& v = x[i / lanes];
        v = load_up_to(scores + i, count - i);
        const std::uint32_t largest = top_magnitude(v, v);
        magnitude = largest > magnitude ? largest : magnitude;
        if (count - i >= lanes) top_of = larger(top_of, v);
    }
    store_floats(tops, top_of);
    float top = tops[0];
    for (std::size_t i = 1; i < lanes; ++i) top = tops[i] > top ? tops[i] : top;
    for (std::size_t i = count / lanes * lanes; i < count; ++i) top = scores[i] > top ? scores[i] : top;
    if (magnitude > 0x7F800000) top = __builtin_nanf("");
    const float shrink = exp_of(work.top[h] - top);
    float sums[vectors] = {};
    for (std::size_t i = 0; i < count; i += lanes) {
        const Floats p = exp_of(sub(x[i / lanes], all_floats(top)));
        store_up_to(scores + i, p, count - i);
        sums[i / lanes] = tree16(load_up_to(scores + i, count - i));  // p is never -0: zeros past the end change nothing
    }
    work.total[h] = work.total[h] * shrink + ((sums[0] + sums[1]) + (sums[2] + sums[3]));
    work.top[h] = top;
    return shrink;
}

// scores of all heads with the keys of a block, (heads, 64): products with the keys as they are kept.
template <int format>
void score_keys(const AttendWork& work, const AttendWork::Keys& keys, std::size_t row_bytes) {
    for (std::size_t first = 0; first < keys.count; first += tile_rows) {
        const std::size_t used = keys.count - first < tile_rows ? keys.count - first : tile_rows;
        const std::uint8_t* rows[tile_rows];
        for (std::size_t i = 0; i < tile_rows; ++i) rows[i] = keys.k + (first + (i < used ? i : used - 1)) * row_bytes;
        std::size_t h = 0;
        const auto some_heads = [&](auto count) {
            constexpr int heads = decltype(count)::value;
            const float* q[heads];
            float* scores[heads];
            for (std::size_t i = 0; i < heads; ++i) {
                q[i] = work.q + (h + i) * work.dim;
                scores[i] = work.scores + (h + i) * block_keys + first;
            }
            float_tile<format, heads>(rows, q, work.dim, scores, used);
            h += heads;
        };
        while (work.heads - h >= std::size_t(most_rows)) some_heads(Count<most_rows>{});
        while (h < work.heads) some_heads(Count<1>{});
    }
    const Floats scale = all_floats(work.scale);
    for (std::size_t h = 0; h < work.heads; ++h)
        each_vector(keys.count, [&](std::size_t i, std::size_t some) {
            float* at = work.scores + h * block_keys + i;
            store_up_to(at, mul(load_up_to(at, some), scale), some);
        });
}

// The trees over the keys of p * v, for sixteen columns of v and H heads, p of the next one block_keys further.
template <int H>
STRATA_OP void weighted_sums(const float* p, const float* column, std::size_t count, Floats sums[H]) {
    Tree<H> tree;
    const auto leaf = [=](std::size_t i, Floats out[H]) STRATA_INLINED {
        const Floats v = load_floats(column + i * lanes);
        STRATA_UNROLL for (std::size_t h = 0; h < H; ++h) out[h] = mul(all_floats(p[h * block_keys + i]), v);
    };
    const auto add_to = [](Floats a[H], const Floats b[H]) STRATA_INLINED {
        STRATA_UNROLL for (int h = 0; h < H; ++h) a[h] = add(a[h], b[h]);
    };
    const auto four = [=](std::size_t i, Floats out[H]) STRATA_INLINED {
        Floats b[H], c[H], d[H];
        leaf(i, out);
        leaf(i + 1, b);
        leaf(i + 2, c);
        leaf(i + 3, d);
        add_to(out, b);
        add_to(c, d);
        add_to(out, c);
    };
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        Floats first[H], second[H];
        four(i, first);
        four(i + 4, second);
        add_to(first, second);
        tree.push(first, 3);
    }
    for (; i < count; ++i) {
        Floats one[H];
        leaf(i, one);
        tree.push(one, 0);
    }
    tree.finish(sums);
}

// The heads' weighted values of columns [d, d + some), from `h` on as long as there are H heads.
template <int H>
STRATA_OP void add_values(const AttendWork& work, const float* shrink, const float* column, std::size_t count, std::size_t d,
                          std::size_t some, std::size_t& h) {
    for (; work.heads - h >= H; h += H) {
        Floats sums[H];
        weighted_sums<H>(work.scores + h * block_keys, column, count, sums);
        for (std::size_t i = 0; i < H; ++i) {
            float* to = work.weighted + (h + i) * work.dim + d;
            store_up_to(to, add(mul(load_up_to(to, some), all_floats(shrink[h + i])), sums[i]), some);
        }
    }
}

void attend_block(const AttendWork& work, const AttendWork::Keys& keys) {
    const std::size_t row_bytes = work.dim * (work.kv_format == 0 ? 4 : 2);
    if (work.kv_format == 0) score_keys<0>(work, keys, row_bytes);
    else if (work.kv_format == 30) score_keys<30>(work, keys, row_bytes);
    else score_keys<1>(work, keys, row_bytes);
    float* shrink = work.memory;  // (heads), then sixteen columns of v
    float* column = work.memory + (work.heads + lanes - 1) / lanes * lanes;
    for (std::size_t h = 0; h < work.heads; ++h) shrink[h] = weigh(work, h, work.scores + h * block_keys, keys.count);
    each_vector(work.dim, [&](std::size_t d, std::size_t some) {
        for (std::size_t i = 0; i < keys.count; ++i)
            store_floats(column + i * lanes, widened(keys.v + i * row_bytes, d, some, work.kv_format));
        std::size_t h = 0;
        add_values<most_rows>(work, shrink, column, keys.count, d, some, h);
        add_values<1>(work, shrink, column, keys.count, d, some, h);
    });
}

void attend_merge(float* top, float* total, float* weighted, const AttendWork& work) {
    for (std::size_t h = 0; h < work.heads; ++h) {
        const float both = maximum(top[h], work.top[h]);
        const float left = exp_of(top[h] - both), right = exp_of(work.top[h] - both);
        top[h] = both;
        total[h] = total[h] * left + work.total[h] * right;
        each_vector(work.dim, [&](std::size_t d, std::size_t some) {
            float* a = weighted + h * work.dim + d;
            const Floats b = load_up_to(work.weighted + h * work.dim + d, some);
            store_up_to(a, add(mul(load_up_to(a, some), all_floats(left)), mul(b, all_floats(right))), some);
        });
    }
}

void attend_finish(const float* total, const float* weighted, float* out, std::size_t heads, std::size_t dim) {
    for (std::size_t h = 0; h < heads; ++h)
        each_vector(dim, [&](std::size_t d, std::size_t some) {
            const std::size_t at = h * dim + d;
            store_up_to(out + at, div(load_up_to(weighted + at, some), all_floats(total[h])), some);
        });
}

}  // namespace

void fill_attend(Kernels& k) {
    k.window.attend_start = attend_start;
    k.window.attend_block = attend_block;
    k.window.attend_merge = attend_merge;
    k.window.attend_finish = attend_finish;
}

}  // namespace STRATA_ISA
}  // namespace strata
