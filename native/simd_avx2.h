// simd.h on AVX2 and F16C: two registers of 32 bytes for each vector.
#pragma once

namespace strata {
namespace STRATA_ISA {
namespace {

struct Bytes {
    __m256i a, b;
};
using Ints = Bytes;
struct Floats {
    __m256 a, b;
};

// Codes above 127 are taken back to signed ones: maddubs would saturate. Dots of them start at 0.
constexpr bool offset_dots = false;
constexpr bool wide_registers = false;  // 32 of them, a vector each

STRATA_OP Bytes load_bytes(const void* p) {
    const __m256i* v = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
STRATA_OP void store_bytes(void* p, Bytes v) {
    __m256i* out = static_cast<__m256i*>(p);
    _mm256_storeu_si256(out, v.a);
    _mm256_storeu_si256(out + 1, v.b);
}
STRATA_OP Bytes all_bytes(int x) {
    const __m256i v = _mm256_set1_epi8(static_cast<char>(x));
    return {v, v};
}
STRATA_OP Bytes all_words(std::int32_t x) {
    const __m256i v = _mm256_set1_epi32(x);
    return {v, v};
}
STRATA_OP Ints as_ints(Bytes v) { return v; }
STRATA_OP Bytes and_bytes(Bytes x, Bytes y) { return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)}; }
STRATA_OP Bytes or_bytes(Bytes x, Bytes y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
STRATA_OP Bytes xor_bytes(Bytes x, Bytes y) { return {_mm256_xor_si256(x.a, y.a), _mm256_xor_si256(x.b, y.b)}; }
STRATA_OP Bytes add_bytes(Bytes x, Bytes y) { return {_mm256_add_epi8(x.a, y.a), _mm256_add_epi8(x.b, y.b)}; }
STRATA_OP Bytes above(Bytes v, int x) {
    const Bytes limit = all_bytes(x), one = all_bytes(1);
    return {_mm256_min_epu8(_mm256_subs_epu8(v.a, limit.a), one.a), _mm256_min_epu8(_mm256_subs_epu8(v.b, limit.b), one.b)};
}

template <int count>
STRATA_OP Bytes right(Bytes v) {
    if constexpr (count == 0) return v;
    if (count > 0) return {_mm256_srli_epi16(v.a, count > 0 ? count : 0), _mm256_srli_epi16(v.b, count > 0 ? count : 0)};
    return {_mm256_slli_epi16(v.a, count < 0 ? -count : 0), _mm256_slli_epi16(v.b, count < 0 ? -count : 0)};
}
template <int count>
STRATA_OP Bytes right_words(Bytes v) {
    return {_mm256_srli_epi32(v.a, count), _mm256_srli_epi32(v.b, count)};
}
template <int count>
STRATA_OP Bytes left_words(Bytes v) {
    return {_mm256_slli_epi32(v.a, count), _mm256_slli_epi32(v.b, count)};
}
STRATA_OP Bytes or_masked(Bytes x, Bytes y, Bytes mask) { return or_bytes(x, and_bytes(y, mask)); }

STRATA_OP Bytes table16(const std::uint8_t* p) {
    const __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return {v, v};
}
STRATA_OP Bytes lookup(Bytes table, Bytes index) {
    return {_mm256_shuffle_epi8(table.a, index.a), _mm256_shuffle_epi8(table.b, index.b)};
}
STRATA_OP Bytes lookup_low(Bytes table, Bytes index) { return lookup(table, and_bytes(index, all_bytes(15))); }
STRATA_OP Bytes select_bits(Bytes mask, Bytes x, Bytes y) {
    const Bytes z = and_bytes(mask, xor_bytes(x, y));
    return xor_bytes(z, y);
}

STRATA_OP std::uint64_t nonzero_bytes(Bytes v) {
    const __m256i zero = _mm256_setzero_si256();
    const std::uint32_t a = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(v.a, zero)));
    const std::uint32_t b = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_cmpeq_epi8(v.b, zero)));
    return ~(a | std::uint64_t(b) << 32);
}
STRATA_OP __m256i half_where(std::uint32_t bits, int x) {
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(static_cast<int>(bits)),
                                              _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
    const __m256i bit = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit), _mm256_set1_epi8(static_cast<char>(x)));
}
STRATA_OP Bytes bytes_where(std::uint64_t bits, int x) {
    return {half_where(static_cast<std::uint32_t>(bits), x), half_where(static_cast<std::uint32_t>(bits >> 32), x)};
}

// Eight rows of a codebook, a 16-bit word each. Scalar loads: gathers of AVX2 are slower, or slowed by microcode.
STRATA_OP __m128i eight_words(const std::uint16_t* words, const std::uint16_t* index) {
    __m128i v = _mm_cvtsi32_si128(words[index[0]]);
    v = _mm_insert_epi16(v, words[index[1]], 1);
    v = _mm_insert_epi16(v, words[index[2]], 2);
    v = _mm_insert_epi16(v, words[index[3]], 3);
    v = _mm_insert_epi16(v, words[index[4]], 4);
    v = _mm_insert_epi16(v, words[index[5]], 5);
    v = _mm_insert_epi16(v, words[index[6]], 6);
    return _mm_insert_epi16(v, words[index[7]], 7);
}
STRATA_OP __m256i sixteen_words(const std::uint16_t* words, const std::uint16_t* index) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(eight_words(words, index)), eight_words(words, index + 8), 1);
}
STRATA_OP void half_rows(const std::uint16_t* words, __m256i low, __m256i high, __m256i& first, __m256i& second) {
    alignas(32) std::uint16_t index[32];
    _mm256_store_si256(reinterpret_cast<__m256i*>(index), _mm256_unpacklo_epi8(low, high));
    _mm256_store_si256(reinterpret_cast<__m256i*>(index + 16), _mm256_unpackhi_epi8(low, high));
    const __m256i a = sixteen_words(words, index), b = sixteen_words(words, index + 16), byte = _mm256_set1_epi16(255);
    first = _mm256_packus_epi16(_mm256_and_si256(a, byte), _mm256_and_si256(b, byte));
    second = _mm256_packus_epi16(_mm256_srli_epi16(a, 8), _mm256_srli_epi16(b, 8));
}
template <int entries>
STRATA_OP void rows_at(const Codebook<entries>& book, Bytes low, const std::uint64_t* high, Bytes& first, Bytes& second) {
    Bytes top = all_bytes(0);
    for (int i = 0; 256 << i < entries; ++i) top = or_bytes(top, bytes_where(high[i], 1 << i));
    half_rows(book.words, low.a, top.a, first.a, second.a);
    half_rows(book.words, low.b, top.b, first.b, second.b);
}
STRATA_OP Bytes swap_middle(Bytes v) {
    alignas(16) static const std::uint8_t order[16] = {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15};
    return lookup(v, table16(order));
}

STRATA_OP Ints all_ints(std::int32_t x) {
    const __m256i v = _mm256_set1_epi32(x);
    return {v, v};
}
STRATA_OP Ints zero_ints() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
template <int count>
STRATA_OP Ints right_arithmetic(Ints v) {
    return {_mm256_srai_epi32(v.a, count), _mm256_srai_epi32(v.b, count)};
}

STRATA_OP __m256i dot_half(__m256i acc, __m256i codes, __m256i q) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, q), _mm256_set1_epi16(1)));
}
STRATA_OP Ints dot(Ints acc, Bytes codes, std::int32_t q) {
    const __m256i all = _mm256_set1_epi32(q);
    return {dot_half(acc.a, codes.a, all), dot_half(acc.b, codes.b, all)};
}
// |code - 128| <= 128 and |q| <= 127: two products of them stay below 2^15.
STRATA_OP __m256i dot_signed_half(__m256i acc, __m256i codes, __m256i q) {
    const __m256i w = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    return dot_half(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(q, w));
}
STRATA_OP Ints dot_big(Ints acc, Bytes codes, std::int32_t q) {
    const __m256i all = _mm256_set1_epi32(q);
    return {dot_signed_half(acc.a, codes.a, all), dot_signed_half(acc.b, codes.b, all)};
}

STRATA_OP Ints dot_pairs(Bytes a, const std::int16_t b[2]) {
    const __m256i all = _mm256_set1_epi32(word_at(b));
    return {_mm256_madd_epi16(a.a, all), _mm256_madd_epi16(a.b, all)};
}

STRATA_OP Floats load_floats(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
STRATA_OP void store_floats(float* p, Floats v) {
    _mm256_storeu_ps(p, v.a);
    _mm256_storeu_ps(p + 8, v.b);
}
STRATA_OP void store_some(float* p, Floats v, std::size_t count) {
    float all[16];
    store_floats(all, v);
    for (std::size_t i = 0; i < count; ++i) p[i] = all[i];
}
STRATA_OP Floats all_floats(float x) {
    const __m256 v = _mm256_set1_ps(x);
    return {v, v};
}
STRATA_OP Floats zero_floats() { return all_floats(0.0f); }
STRATA_OP Floats add(Floats x, Floats y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
STRATA_OP Floats sub(Floats x, Floats y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
STRATA_OP Floats mul(Floats x, Floats y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
STRATA_OP Floats mul_add_exact(Floats x, Floats y, Floats z) { return add(mul(x, y), z); }
STRATA_OP Floats to_floats(Ints v) { return {_mm256_cvtepi32_ps(v.a), _mm256_cvtepi32_ps(v.b)}; }
STRATA_OP Floats as_floats(Ints v) { return {_mm256_castsi256_ps(v.a), _mm256_castsi256_ps(v.b)}; }

STRATA_OP Bytes pairs(Floats a, Floats b) {
    const Bytes high{_mm256_cvttps_epi32(b.a), _mm256_cvttps_epi32(b.b)};
    return or_bytes({_mm256_cvttps_epi32(a.a), _mm256_cvttps_epi32(a.b)}, left_words<16>(high));
}

STRATA_OP Floats halves_at(const void* p) {
    const __m128i* v = static_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(v)), _mm256_cvtph_ps(_mm_loadu_si128(v + 1))};
}
STRATA_OP Ints bytes_at(const void* p) {
    const __m128i v = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return {_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))};
}
STRATA_OP Ints signed_bytes_at(const void* p) {
    const __m128i v = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return {_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))};
}
template <int i>
STRATA_OP Ints unsigned_byte(Bytes v) {
    return and_bytes(right_words<8 * i>(v), all_ints(255));
}
template <int i>
STRATA_OP Ints signed_byte(Bytes v) {
    return right_arithmetic<24>(left_words<24 - 8 * i>(v));
}
STRATA_OP void store_low_halves(void* p, Bytes v) {
    const Bytes low = and_bytes(v, all_ints(0xFFFF));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low.a, low.b), 0xD8);
    _mm256_storeu_si256(static_cast<__m256i*>(p), packed);
}
STRATA_OP __m256 half_e8m0(__m256i e) {
    const __m256i bits = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_cmpgt_epi32(e, _mm256_set1_epi32(67)), bits));
}
STRATA_OP Floats half_e8m0_at(const void* p) {
    const Ints e = bytes_at(p);
    return {half_e8m0(e.a), half_e8m0(e.b)};
}
STRATA_OP Floats half_ue4m3_at(const void* p) {
    const __m256i bits = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p))), 7);
    const Floats v{_mm256_cvtph_ps(_mm256_castsi256_si128(bits)), _mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1))};
    return mul(v, all_floats(128.0f));
}

STRATA_OP __m256i two_rows(const std::uint8_t* const rows[16], std::size_t at, int first) {
    const __m128i* low = reinterpret_cast<const __m128i*>(rows[first] + at);
    const __m128i* high = reinterpret_cast<const __m128i*>(rows[first + 4] + at);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(low)), _mm_loadu_si128(high), 1);
}
STRATA_OP void transpose_eight(const std::uint8_t* const rows[16], std::size_t at, int first, __m256i out[4]) {
    const __m256i a = two_rows(rows, at, first), b = two_rows(rows, at, first + 1), c = two_rows(rows, at, first + 2),
                  d = two_rows(rows, at, first + 3);
    const __m256i ab0 = _mm256_unpacklo_epi32(a, b), ab1 = _mm256_unpackhi_epi32(a, b);
    const __m256i cd0 = _mm256_unpacklo_epi32(c, d), cd1 = _mm256_unpackhi_epi32(c, d);
    out[0] = _mm256_unpacklo_epi64(ab0, cd0);
    out[1] = _mm256_unpackhi_epi64(ab0, cd0);
    out[2] = _mm256_unpacklo_epi64(ab1, cd1);
    out[3] = _mm256_unpackhi_epi64(ab1, cd1);
}
STRATA_OP void transpose_rows(const std::uint8_t* const rows[16], std::size_t at, Bytes out[4]) {
    __m256i low[4], high[4];
    transpose_eight(rows, at, 0, low);
    transpose_eight(rows, at, 8, high);
    for (int i = 0; i < 4; ++i) out[i] = {low[i], high[i]};
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
