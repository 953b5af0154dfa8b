// simd.h in plain loops, for any machine.
#pragma once

namespace strata {
namespace STRATA_ISA {
namespace {

struct Bytes {
    std::uint8_t v[64];
};
struct Ints {
    std::int32_t v[16];
};
struct Floats {
    float v[16];
};

constexpr bool offset_dots = false;
constexpr bool wide_registers = false;  // 32 of them, a vector each

#define STRATA_EACH(type, count, expression)                       \
    type out;                                                      \
    for (int i = 0; i < count; ++i) out.v[i] = expression;         \
    return out
#define STRATA_BYTE(expression) STRATA_EACH(Bytes, 64, static_cast<std::uint8_t>(expression))
#define STRATA_INT(expression) STRATA_EACH(Ints, 16, expression)
#define STRATA_FLOAT(expression) STRATA_EACH(Floats, 16, expression)

STRATA_OP Bytes load_bytes(const void* p) {
    Bytes v;
    __builtin_memcpy(&v, p, 64);
    return v;
}
STRATA_OP void store_bytes(void* p, Bytes v) { __builtin_memcpy(p, &v, 64); }
STRATA_OP Bytes all_bytes(int x) { STRATA_BYTE(x); }
STRATA_OP Bytes all_words(std::int32_t x) {
    std::int32_t words[16];
    for (std::int32_t& word : words) word = x;
    return load_bytes(words);
}
STRATA_OP Ints as_ints(Bytes a) {
    Ints v;
    __builtin_memcpy(&v, &a, 64);
    return v;
}
STRATA_OP Bytes and_bytes(Bytes a, Bytes b) { STRATA_BYTE(a.v[i] & b.v[i]); }
STRATA_OP Bytes or_bytes(Bytes a, Bytes b) { STRATA_BYTE(a.v[i] | b.v[i]); }
STRATA_OP Bytes xor_bytes(Bytes a, Bytes b) { STRATA_BYTE(a.v[i] ^ b.v[i]); }
STRATA_OP Bytes add_bytes(Bytes a, Bytes b) { STRATA_BYTE(a.v[i] + b.v[i]); }
STRATA_OP Bytes above(Bytes a, int x) { STRATA_BYTE(a.v[i] > x); }
template <int count>
STRATA_OP Bytes right(Bytes a) {  // bytes alone: nothing of a neighbour comes in, and nobody counts on it
    STRATA_BYTE(count > 0 ? a.v[i] >> (count > 0 ? count : 0) : a.v[i] << (count < 0 ? -count : 0));
}
template <int count>
STRATA_OP Bytes right_words(Bytes a) {
    std::uint32_t words[16];
    __builtin_memcpy(words, &a, 64);
    for (std::uint32_t& word : words) word >>= count;
    return load_bytes(words);
}
template <int count>
STRATA_OP Bytes left_words(Bytes a) {
    std::uint32_t words[16];
    __builtin_memcpy(words, &a, 64);
    for (std::uint32_t& word : words) word <<= count;
    return load_bytes(words);
}
STRATA_OP Bytes or_masked(Bytes a, Bytes b, Bytes mask) { STRATA_BYTE(a.v[i] | (b.v[i] & mask.v[i])); }
STRATA_OP Bytes table16(const std::uint8_t* p) { STRATA_BYTE(p[i % 16]); }
STRATA_OP Bytes lookup(Bytes table, Bytes index) { STRATA_BYTE(table.v[index.v[i]]); }
STRATA_OP Bytes lookup_low(Bytes table, Bytes index) { STRATA_BYTE(table.v[index.v[i] & 15]); }
STRATA_OP Bytes select_bits(Bytes mask, Bytes a, Bytes b) { STRATA_BYTE((mask.v[i] & a.v[i]) | (~mask.v[i] & b.v[i])); }
STRATA_OP std::uint64_t nonzero_bytes(Bytes a) {
    std::uint64_t bits = 0;
    for (int i = 0; i < 64; ++i) bits |= std::uint64_t(a.v[i] != 0) << i;
    return bits;
}
STRATA_OP Bytes bytes_where(std::uint64_t bits, int x) { STRATA_BYTE(bits >> i & 1 ? x : 0); }
template <int entries>
STRATA_OP void rows_at(const Codebook<entries>& book, Bytes low, const std::uint64_t* high, Bytes& first, Bytes& second) {
    for (int i = 0; i < 64; ++i) {
        unsigned index = low.v[i];
        for (int j = 0; 256 << j < entries; ++j) index |= unsigned(high[j] >> i & 1) << (8 + j);
        first.v[i] = book.planes[0][index];
        second.v[i] = book.planes[1][index];
    }
}
STRATA_OP Bytes swap_middle(Bytes a) { STRATA_BYTE(a.v[i / 4 * 4 + "\0\2\1\3"[i % 4]]); }

STRATA_OP Ints all_ints(std::int32_t x) { STRATA_INT(x); }
STRATA_OP Ints zero_ints() { STRATA_INT(0); }
template <int count>
STRATA_OP Ints right_arithmetic(Ints a) {
    STRATA_INT(a.v[i] >> count);
}
STRATA_OP Ints dot_from(Ints acc, Bytes codes, std::int32_t q, int offset) {
    std::int8_t at[4];
    __builtin_memcpy(at, &q, 4);
    for (int i = 0; i < 16; ++i)
        for (int j = 0; j < 4; ++j) acc.v[i] += (codes.v[4 * i + j] - offset) * at[j];
    return acc;
}
STRATA_OP Ints dot(Ints acc, Bytes codes, std::int32_t q) { return dot_from(acc, codes, q, 0); }
STRATA_OP Ints dot_big(Ints acc, Bytes codes, std::int32_t q) { return dot_from(acc, codes, q, 128); }

STRATA_OP Ints dot_pairs(Bytes a, const std::int16_t b[2]) {
    std::int16_t pairs[32];
    __builtin_memcpy(pairs, &a, 64);
    STRATA_INT(pairs[2 * i] * b[0] + pairs[2 * i + 1] * b[1]);
}

STRATA_OP Floats load_floats(const float* p) { STRATA_FLOAT(p[i]); }
STRATA_OP void store_floats(float* p, Floats a) { __builtin_memcpy(p, &a, 64); }
STRATA_OP void store_some(float* p, Floats a, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) p[i] = a.v[i];
}
STRATA_OP Floats all_floats(float x) { STRATA_FLOAT(x); }
STRATA_OP Floats zero_floats() { STRATA_FLOAT(0.0f); }
STRATA_OP Floats add(Floats a, Floats b) { STRATA_FLOAT(a.v[i] + b.v[i]); }
STRATA_OP Floats sub(Floats a, Floats b) { STRATA_FLOAT(a.v[i] - b.v[i]); }
STRATA_OP Floats mul(Floats a, Floats b) { STRATA_FLOAT(a.v[i] * b.v[i]); }
STRATA_OP Floats mul_add_exact(Floats a, Floats b, Floats c) { return add(mul(a, b), c); }
STRATA_OP Floats to_floats(Ints a) { STRATA_FLOAT(static_cast<float>(a.v[i])); }
STRATA_OP Floats as_floats(Ints a) {
    Floats v;
    __builtin_memcpy(&v, &a, 64);
    return v;
}

STRATA_OP Bytes pairs(Floats a, Floats b) {
    std::int16_t out[32];
    for (int i = 0; i < 16; ++i) {
        out[2 * i] = static_cast<std::int16_t>(a.v[i]);
        out[2 * i + 1] = static_cast<std::int16_t>(b.v[i]);
    }
    return load_bytes(out);
}

STRATA_OP float half(std::uint16_t h) {
    // The bits as those of a float, times 2^112: exact for normals and denormals; infinity and NaN get their exponent back.
    std::uint32_t u = std::uint32_t(h & 0x7FFF) << 13;
    float x;
    __builtin_memcpy(&x, &u, 4);
    x *= 5.192296858534828e33f;
    __builtin_memcpy(&u, &x, 4);
    if ((h & 0x7C00) == 0x7C00) u = 0x7F800000u | std::uint32_t(h & 0x3FF) << 13;
    u |= std::uint32_t(h & 0x8000) << 16;
    __builtin_memcpy(&x, &u, 4);
    return x;
}
STRATA_OP Floats halves_at(const void* p) {
    std::uint16_t h[16];
    __builtin_memcpy(h, p, 32);
    STRATA_FLOAT(half(h[i]));
}
STRATA_OP Ints bytes_at(const void* p) {
    const std::uint8_t* b = static_cast<const std::uint8_t*>(p);
    STRATA_INT(b[i]);
}
STRATA_OP Ints signed_bytes_at(const void* p) {
    const std::int8_t* b = static_cast<const std::int8_t*>(p);
    STRATA_INT(b[i]);
}
template <int b>
STRATA_OP Ints unsigned_byte(Bytes a) {
    STRATA_INT(a.v[4 * i + b]);
}
template <int b>
STRATA_OP Ints signed_byte(Bytes a) {
    STRATA_INT(static_cast<std::int8_t>(a.v[4 * i + b]));
}
STRATA_OP void store_low_halves(void* p, Bytes a) {
    for (int i = 0; i < 16; ++i) __builtin_memcpy(static_cast<std::uint8_t*>(p) + 2 * i, a.v + 4 * i, 2);
}
STRATA_OP Floats half_e8m0_at(const void* p) {
    const Ints e = bytes_at(p);
    Ints bits;
    for (int i = 0; i < 16; ++i) bits.v[i] = e.v[i] > 67 ? (e.v[i] - 1) << 23 : 0;
    return as_floats(bits);
}
STRATA_OP Floats half_ue4m3_at(const void* p) {
    const std::uint8_t* b = static_cast<const std::uint8_t*>(p);
    STRATA_FLOAT(half(static_cast<std::uint16_t>(b[i] << 7)) * 128.0f);
}

STRATA_OP void transpose_rows(const std::uint8_t* const rows[16], std::size_t at, Bytes out[4]) {
    for (int r = 0; r < 16; ++r)
        for (int i = 0; i < 4; ++i) __builtin_memcpy(out[i].v + 4 * r, rows[r] + at + 4 * i, 4);
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
