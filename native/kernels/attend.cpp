// Attention over one block of at most 64 keys, for the query heads that share a key head; docs/arithmetic.md, section 10.
#include "kernels.h"
#include "simd_math.h"

namespace strata {
namespace STRATA_ISA {
namespace {

constexpr float minus_infinity = -__builtin_inff();

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
    float top = work.top[h];
    for (std::size_t i = 0; i < count; ++i) top = maximum(top, scores[i]);
    const float shrink = exp_of(work.top[h] - top);
    ScalarTree tree;
    each_vector(count, [&](std::size_t i, std::size_t some) {
        store_up_to(scores + i, exp_of(sub(load_up_to(scores + i, some), all_floats(top))), some);
        for (std::size_t j = 0; j < some; ++j) tree.push(scores[i + j]);
    });
    work.total[h] = work.total[h] * shrink + tree.finish();
    work.top[h] = top;
    return shrink;
}

void attend_block(const AttendWork& work, const AttendWork::Keys& keys) {
    const std::size_t row_bytes = work.dim * (work.kv_format == 0 ? 4 : 2);
    for (std::size_t i = 0; i < keys.count; ++i)
        each_vector(work.dim, [&](std::size_t d, std::size_t some) {
            store_up_to(work.widened + i * work.dim + d, widened(keys.k + i * row_bytes, d, some, work.kv_format), some);
        });
    for (std::size_t h = 0; h < work.heads; ++h) {
        const float* q = work.q + h * work.dim;
        for (std::size_t i = 0; i < keys.count; ++i) {
            const float* k = work.widened + i * work.dim;
            work.scores[h * 64 + i] = lane_sum(work.dim, [=](std::size_t d, std::size_t some) {
                return mul(load_up_to(q + d, some), load_up_to(k + d, some));
            }) * work.scale;
        }
    }
    for (std::size_t i = 0; i < keys.count; ++i)
        each_vector(work.dim, [&](std::size_t d, std::size_t some) {
            store_up_to(work.widened + i * work.dim + d, widened(keys.v + i * row_bytes, d, some, work.kv_format), some);
        });
    for (std::size_t h = 0; h < work.heads; ++h) {
        float* p = work.scores + h * 64;
        const Floats shrink = all_floats(weigh(work, h, p, keys.count));
        each_vector(work.dim, [&](std::size_t d, std::size_t some) {
            Tree<1> tree;
            for (std::size_t i = 0; i < keys.count; ++i) {
                const Floats leaf[1] = {mul(all_floats(p[i]), load_up_to(work.widened + i * work.dim + d, some))};
                tree.push(leaf, 0);
            }
            Floats sum[1];
            tree.finish(sum);
            float* to = work.weighted + h * work.dim + d;
            store_up_to(to, add(mul(load_up_to(to, some), shrink), sum[0]), some);
        });
    }
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
