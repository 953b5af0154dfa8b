// simd.h on AVX-512 F, BW, DQ, VL, VNNI, VBMI.
#pragma once

namespace strata {
namespace STRATA_ISA {
namespace {

using Bytes = __m512i;
using Ints = __m512i;
using Floats = __m512;

// Dots of codes above 127 with q start at -128 * sum(q): the codes carry an offset of 128.
constexpr bool offset_dots = true;
constexpr bool wide_registers = true;  // 32 of them, a vector each

STRATA_OP Bytes load_bytes(const void* p) { return _mm512_loadu_si512(p); }
STRATA_OP void store_bytes(void* p, Bytes v) { _mm512_storeu_si512(p, v); }
STRATA_OP Bytes all_bytes(int x) { return _mm512_set1_epi8(static_cast<char>(x)); }
STRATA_OP Bytes all_words(std::int32_t x) { return _mm512_set1_epi32(x); }
STRATA_OP Ints as_ints(Bytes v) { return v; }
STRATA_OP Bytes and_bytes(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
STRATA_OP Bytes or_bytes(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
STRATA_OP Bytes xor_bytes(Bytes a, Bytes b) { return _mm512_xor_si512(a, b); }
STRATA_OP Bytes add_bytes(Bytes a, Bytes b) { return _mm512_add_epi8(a, b); }
STRATA_OP Bytes above(Bytes a, int x) {  // 1 where a byte is above x, else 0
    return _mm512_min_epu8(_mm512_subs_epu8(a, all_bytes(x)), all_bytes(1));
}

// Bits of 16-bit words: bits of the neighbour come in, a mask takes them away.
template <int count>
STRATA_OP Bytes right(Bytes v) {
    if constexpr (count == 0) return v;
    return count > 0 ? _mm512_srli_epi16(v, count > 0 ? count : 0) : _mm512_slli_epi16(v, count < 0 ? -count : 0);
}

// Thirty-two-bit words.
template <int count>
STRATA_OP Bytes right_words(Bytes v) {
    return _mm512_srli_epi32(v, count);
}
template <int count>
STRATA_OP Bytes left_words(Bytes v) {
    return _mm512_slli_epi32(v, count);
}

// a | (b & mask)
STRATA_OP Bytes or_masked(Bytes a, Bytes b, Bytes mask) { return _mm512_ternarylogic_epi32(a, b, mask, 0xF8); }

// Sixteen bytes as a table for `lookup`, whose indices are below 16.
STRATA_OP Bytes table16(const std::uint8_t* p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
STRATA_OP Bytes lookup(Bytes table, Bytes index) { return _mm512_shuffle_epi8(table, index); }

// The same for any index, of which only the low four bits count.
STRATA_OP Bytes lookup_low(Bytes table, Bytes index) { return _mm512_permutexvar_epi8(index, table); }

// (mask & a) | (~mask & b)
STRATA_OP Bytes select_bits(Bytes mask, Bytes a, Bytes b) { return _mm512_ternarylogic_epi32(mask, a, b, 0xCA); }

// Bytes as bits: bit j tells of byte j.
STRATA_OP std::uint64_t nonzero_bytes(Bytes v) { return _mm512_test_epi8_mask(v, v); }
STRATA_OP Bytes bytes_where(std::uint64_t bits, int x) { return _mm512_maskz_set1_epi8(bits, static_cast<char>(x)); }

// Bytes of a plane of `entries`; high[i] has bit 8 + i of every index.
template <int entries>
STRATA_OP Bytes plane_at(const std::uint8_t* plane, Bytes low, const std::uint64_t* high) {
    if constexpr (entries == 128) {
        return _mm512_permutex2var_epi8(load_bytes(plane), low, load_bytes(plane + 64));
    } else {
        constexpr int part = entries / 2;
        __mmask64 upper;
        if constexpr (part == 128) upper = _mm512_movepi8_mask(low);
        else upper = high[part / 512];
        return _mm512_mask_blend_epi8(upper, plane_at<part>(plane, low, high), plane_at<part>(plane + part, low, high));
    }
}

// Rows of a codebook: its two planes.
template <int entries>
STRATA_OP void rows_at(const Codebook<entries>& book, Bytes low, const std::uint64_t* high, Bytes& first, Bytes& second) {
    first = plane_at<entries>(book.planes[0], low, high);
    second = plane_at<entries>(book.planes[1], low, high);
}

// Bytes 0, 1, 2, 3 of each word to 0, 2, 1, 3.
STRATA_OP Bytes swap_middle(Bytes v) {
    return _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15)));
}

STRATA_OP Ints all_ints(std::int32_t x) { return _mm512_set1_epi32(x); }
STRATA_OP Ints zero_ints() { return _mm512_setzero_si512(); }
template <int count>
STRATA_OP Ints right_arithmetic(Ints v) {
    return _mm512_srai_epi32(v, count);
}

// acc + sum over the four bytes of each lane of codes times q (four signed bytes, the same for all lanes); codes <= 127.
STRATA_OP Ints dot(Ints acc, Bytes codes, std::int32_t q) {
    return _mm512_dpbusd_epi32(acc, codes, _mm512_set1_epi32(q));
}
// The same for codes up to 255 that stand for code - 128, where `offset_dots` says how.
STRATA_OP Ints dot_big(Ints acc, Bytes codes, std::int32_t q) { return dot(acc, codes, q); }

// Lane-wise a[0] * b[0] + a[1] * b[1] of int16 pairs; b the same for all lanes.
STRATA_OP Ints dot_pairs(Bytes a, const std::int16_t b[2]) { return _mm512_madd_epi16(a, all_ints(word_at(b))); }

STRATA_OP Floats load_floats(const float* p) { return _mm512_loadu_ps(p); }
STRATA_OP void store_floats(float* p, Floats v) { _mm512_storeu_ps(p, v); }
STRATA_OP void store_some(float* p, Floats v, std::size_t count) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), v);
}
STRATA_OP Floats all_floats(float x) { return _mm512_set1_ps(x); }
STRATA_OP Floats zero_floats() { return _mm512_setzero_ps(); }
STRATA_OP Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
STRATA_OP Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
STRATA_OP Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
// a * b + c where both the product and the sum are exact.
STRATA_OP Floats mul_add_exact(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
STRATA_OP Floats to_floats(Ints v) { return _mm512_cvtepi32_ps(v); }
STRATA_OP Floats as_floats(Ints v) { return _mm512_castsi512_ps(v); }

// Pairs of int16 from whole numbers, 0 to 2^15 - 1.
STRATA_OP Bytes pairs(Floats a, Floats b) {
    return or_bytes(_mm512_cvttps_epi32(a), left_words<16>(_mm512_cvttps_epi32(b)));
}

STRATA_OP Floats halves_at(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
STRATA_OP Ints bytes_at(const void* p) {  // 16 unsigned bytes
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
STRATA_OP Ints signed_bytes_at(const void* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
}
// Byte i of each lane.
template <int i>
STRATA_OP Ints unsigned_byte(Bytes v) {
    return _mm512_and_si512(right_words<8 * i>(v), _mm512_set1_epi32(255));
}
template <int i>
STRATA_OP Ints signed_byte(Bytes v) {
    return _mm512_srai_epi32(left_words<24 - 8 * i>(v), 24);
}
// The low 16 bits of each lane.
STRATA_OP void store_low_halves(void* p, Bytes v) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v));
}
// Powers of two as e8m0 has them, halved; below 2^-60: 0.
STRATA_OP Floats half_e8m0_at(const void* p) {
    const Ints e = bytes_at(p);
    const __mmask16 kept = _mm512_cmpgt_epi32_mask(e, _mm512_set1_epi32(67));
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kept, _mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23));
}
// Half a ue4m3 (0x7F was replaced by 0): its bits stand seven places higher in a float16, which is 2^-8 of it.
STRATA_OP Floats half_ue4m3_at(const void* p) {
    const __m256i bits = _mm256_slli_epi16(_mm256_cvtepu8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p))), 7);
    return mul(_mm512_cvtph_ps(bits), all_floats(128.0f));
}

STRATA_OP __m512i four_rows(const std::uint8_t* const rows[16], std::size_t at, int first) {
    const auto row = [&](int r) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[first + r] + at)); };
    __m512i v = _mm512_castsi128_si512(row(0));
    v = _mm512_inserti32x4(v, row(4), 1);
    v = _mm512_inserti32x4(v, row(8), 2);
    return _mm512_inserti32x4(v, row(12), 3);
}

// Sixteen bytes of each of 16 rows to four vectors: lane r of vector i is word i of row r.
STRATA_OP void transpose_rows(const std::uint8_t* const rows[16], std::size_t at, Bytes out[4]) {
    const __m512i a = four_rows(rows, at, 0), b = four_rows(rows, at, 1), c = four_rows(rows, at, 2),
                  d = four_rows(rows, at, 3);
    const __m512i ab0 = _mm512_unpacklo_epi32(a, b), ab1 = _mm512_unpackhi_epi32(a, b);
    const __m512i cd0 = _mm512_unpacklo_epi32(c, d), cd1 = _mm512_unpackhi_epi32(c, d);
    out[0] = _mm512_unpacklo_epi64(ab0, cd0);
    out[1] = _mm512_unpackhi_epi64(ab0, cd0);
    out[2] = _mm512_unpacklo_epi64(ab1, cd1);
    out[3] = _mm512_unpackhi_epi64(ab1, cd1);
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
