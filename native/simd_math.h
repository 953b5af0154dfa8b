// What the window's kernels need beyond simd.h: division, choices, exp, sums in the order of docs/arithmetic.md, and the
// caches' types. For native/kernels/*.cpp only.
#pragma once
#include "simd.h"

#define STRATA_INLINED __attribute__((always_inline))  // of a lambda, between its parameters and its body

namespace strata {
namespace STRATA_ISA {
namespace {

constexpr std::size_t lanes = 16;

#if defined(STRATA_ISA_AVX512VNNI) || defined(STRATA_ISA_AMX)
STRATA_OP Floats load_some(const float* p, std::size_t count) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
}
STRATA_OP Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
STRATA_OP Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }    // a > b ? a : b
STRATA_OP Floats smaller(Floats a, Floats b) { return _mm512_min_ps(a, b); }   // a < b ? a : b
STRATA_OP Floats zero_where_less(Floats x, Floats limit, Floats y) {           // x < limit ? 0 : y
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, limit, _CMP_NLT_UQ), y);
}
STRATA_OP Floats by_sign(Floats x, Floats a, Floats b) {  // x >= 0 ? a : b
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, zero_floats(), _CMP_GE_OQ), b, a);
}
STRATA_OP Floats minus_magnitude(Floats x) {  // -|x|
    return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(x), _mm512_set1_epi32(std::int32_t(0x80000000u))));
}
// 2^n from the bits of n + 12582912.
STRATA_OP Floats power_of(Floats shifted) {
    const __m512i e = _mm512_sub_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(0x4B400000 - 127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
}
STRATA_OP float first_of(Floats v) { return _mm512_cvtss_f32(v); }
STRATA_OP Floats floats_at(const void* p) { return _mm512_loadu_ps(p); }  // from any byte
// The bits of the largest magnitude; a NaN's are above all others.
STRATA_OP std::uint32_t top_magnitude(Floats a, Floats b) {
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    const __m512i x = _mm512_and_si512(_mm512_castps_si512(a), magnitude), y = _mm512_and_si512(_mm512_castps_si512(b), magnitude);
    return _mm512_reduce_max_epu32(_mm512_max_epu32(x, y));
}
// Sixteen bytes with places 4 s + p from {0, 8, 4, 12}[p] + s: see native/kernels/quantize.cpp.
STRATA_OP void spread_quarters(const std::int8_t* from, std::int8_t* to) {
    const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    const __m128i order = _mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_shuffle_epi8(v, order));
}
// Sixteen small integers n from the bits of n + 12582912.
STRATA_OP void store_integers(std::int8_t* p, Floats shifted) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_castps_si512(shifted)));
}
STRATA_OP Floats bfloats_at(const void* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
STRATA_OP void store_bfloats(void* p, Floats x) {
    const __m512i bits = _mm512_castps_si512(x), one = _mm512_set1_epi32(1);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), one);
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}
STRATA_OP void store_halves(void* p, Floats x) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// The tree over 16 lanes: neighbours first.
STRATA_OP float tree16(Floats v) {
    v = add(v, _mm512_permute_ps(v, 0xB1));
    v = add(v, _mm512_permute_ps(v, 0x4E));
    v = add(v, _mm512_shuffle_f32x4(v, v, 0xB1));
    v = add(v, _mm512_shuffle_f32x4(v, v, 0x4E));
    return first_of(v);
}
STRATA_OP Floats neighbours(Floats a, Floats b) {
    return add(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xDD));
}
STRATA_OP Floats neighbour_fours(Floats a, Floats b) {
    return add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
}
// Lane i: tree16(v[i]).
STRATA_OP Floats sixteen_trees(const Floats v[16]) {
    Floats four[4];
    STRATA_UNROLL for (int i = 0; i < 4; ++i)
        four[i] = neighbours(neighbours(v[4 * i], v[4 * i + 1]), neighbours(v[4 * i + 2], v[4 * i + 3]));
    return neighbour_fours(neighbour_fours(four[0], four[1]), neighbour_fours(four[2], four[3]));
}
#elif defined(STRATA_ISA_AVX2)
#include "simd_math_avx2.h"
#else
#include "simd_math_portable.h"
#endif

STRATA_OP Floats load_up_to(const float* p, std::size_t count) { return count >= lanes ? load_floats(p) : load_some(p, count); }
STRATA_OP void store_up_to(float* p, Floats v, std::size_t count) {
    if (count >= lanes)
        store_floats(p, v);
    else
        store_some(p, v, count);
}

// docs/arithmetic.md, section 5.
STRATA_OP Floats exp_of(Floats x) {
    const Floats low = all_floats(-87.0f), magic = all_floats(12582912.0f);
    const Floats clamped = smaller(all_floats(88.0f), larger(low, x));
    const Floats shifted = add(mul(clamped, all_floats(1.44269504f)), magic);
    const Floats n = sub(shifted, magic);
    const Floats r = sub(sub(clamped, mul(n, all_floats(0.693359375f))), mul(n, all_floats(-2.12194440e-4f)));
    Floats p = all_floats(float(1.0 / 5040));
    p = add(mul(p, r), all_floats(float(1.0 / 720)));
    p = add(mul(p, r), all_floats(float(1.0 / 120)));
    p = add(mul(p, r), all_floats(float(1.0 / 24)));
    p = add(mul(p, r), all_floats(float(1.0 / 6)));
    p = add(mul(p, r), all_floats(0.5f));
    p = add(mul(p, r), all_floats(1.0f));
    p = add(mul(p, r), all_floats(1.0f));
    return zero_where_less(x, low, mul(p, power_of(shifted)));
}

STRATA_OP Floats sigmoid_of(Floats x) {
    const Floats one = all_floats(1.0f), e = exp_of(minus_magnitude(x));
    return div(by_sign(x, one, e), add(one, e));
}

STRATA_OP Floats silu_of(Floats x) { return mul(x, sigmoid_of(x)); }

STRATA_OP float exp_of(float x) { return first_of(exp_of(all_floats(x))); }
STRATA_OP float sigmoid_of(float x) { return first_of(sigmoid_of(all_floats(x))); }

// The pairwise tree over vectors that come one after the other: neighbours first, padded with +0 to a power of two.
template <int width>
struct Tree {
    Floats part[21][width];
    std::size_t count = 0;

    // The sum of the next 2^level leaves; count is a multiple of that.
    STRATA_MEMBER void push(const Floats v[width], int level) {
        Floats sum[width];
        for (int w = 0; w < width; ++w) sum[w] = v[w];
        const std::size_t leaves = std::size_t(1) << level;
        for (; count >> level & 1; ++level)
            for (int w = 0; w < width; ++w) sum[w] = add(part[level][w], sum[w]);
        for (int w = 0; w < width; ++w) part[level][w] = sum[w];
        count += leaves;
    }

    STRATA_MEMBER void finish(Floats out[width]) const {
        for (int w = 0; w < width; ++w) out[w] = zero_floats();
        if (count == 0) return;
        if ((count & (count - 1)) == 0) {
            const int level = __builtin_ctzll(count);
            for (int w = 0; w < width; ++w) out[w] = part[level][w];
            return;
        }
        for (int level = 0; count >> level; ++level)  // the padding: x + 0 + 0 = x + 0, so it is added once
            if (count >> level & 1)
                for (int w = 0; w < width; ++w) out[w] = add(part[level][w], out[w]);
    }
};

// The same for single values: sums of the segments of a lane sum.
struct ScalarTree {
    float part[21];
    std::size_t count = 0;

    STRATA_MEMBER void push(float sum) {
        int level = 0;
        for (; count >> level & 1; ++level) sum = part[level] + sum;
        part[level] = sum;
        ++count;
    }
    STRATA_MEMBER float finish() const {
        if (count == 0) return 0.0f;
        if ((count & (count - 1)) == 0) return part[__builtin_ctzll(count)];
        float sum = 0.0f;
        for (int level = 0; count >> level; ++level)
            if (count >> level & 1) sum = part[level] + sum;
        return sum;
    }
};

// The lane sum of f(i, some) over [0, n): the leaves i..i+some of a vector. Section 2.
template <class F>
STRATA_OP float lane_sum(std::size_t n, F f) {
    ScalarTree tree;
    for (std::size_t start = 0; start < n; start += 128) {
        Floats low = zero_floats(), high = zero_floats();
        if (n - start >= 128) {
            for (std::size_t i = start; i < start + 128; i += 2 * lanes) {
                low = add(low, f(i, lanes));
                high = add(high, f(i + lanes, lanes));
            }
        } else {
            for (std::size_t i = start; i < n; i += 2 * lanes) {
                low = add(low, f(i, n - i < lanes ? n - i : lanes));
                if (n - i > lanes) high = add(high, f(i + lanes, n - i - lanes < lanes ? n - i - lanes : lanes));
            }
        }
        tree.push(tree16(low) + tree16(high));
    }
    return tree.finish();
}

// f(i, some) for the vectors of [0, n).
template <class F>
STRATA_OP void each_vector(std::size_t n, F f) {
    std::size_t i = 0;
    for (; i + lanes <= n; i += lanes) f(i, lanes);
    if (i < n) f(i, n - i);
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
