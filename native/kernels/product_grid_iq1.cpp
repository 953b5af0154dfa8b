// Codebook rows of eight elements -1, 0 or 1, plus or minus an eighth: IQ1_S, IQ1_M. A block has four row numbers, two a
// half; its codes are eight times the weight.
#include "product_grid.h"

namespace strata {
namespace STRATA_ISA {

void fill_product_grid_iq1(Kernels&);

namespace {

// Codes by level (two bits), first those with the eighth added, then those without it; bit 3 of an index does not count.
alignas(16) const std::uint8_t iq1_codes[16] = {9, 17, 25, 16, 7, 15, 23, 16, 9, 17, 25, 16, 7, 15, 23, 16};

STRATA_OP void half_codes(Bytes levels, Bytes signs, Bytes table, Bytes w[4]) {
    const Bytes two = all_bytes(3);
    w[0] = lookup_low(table, select_bits(two, levels, signs));
    w[1] = lookup_low(table, select_bits(two, right<2>(levels), signs));
    w[2] = lookup_low(table, select_bits(two, right<4>(levels), signs));
    w[3] = lookup_low(table, select_bits(two, right<6>(levels), signs));
}

// signs: bit 2 of the bytes of each half's words.
STRATA_OP void block_codes(Bytes low, const std::uint64_t high[3], Bytes first_signs, Bytes second_signs, Bytes w[8]) {
    const Bytes table = table16(iq1_codes), low_half = all_words(0xFFFF);
    Bytes first, second;  // elements 0..3 and 4..7 of four rows of the codebook
    rows_at(codebooks.iq1, low, high, first, second);
    half_codes(select_bits(low_half, first, left_words<16>(second)), first_signs, table, w);
    half_codes(select_bits(low_half, right_words<16>(first), second), second_signs, table, w + 4);
}

STRATA_OP Floats eighth_of(const std::uint8_t* halves) { return mul(halves_at(halves), all_floats(0.125f)); }

// Four fields of `bits` bits in the low half (b odd: the high half) of each lane, a byte each.
template <int b, int bits>
STRATA_OP Bytes four_fields(Bytes v) {
    const Bytes x = b % 2 ? right_words<16>(v) : v;
    constexpr int field = (1 << bits) - 1;
    Bytes t = and_bytes(x, all_words(field));
    t = or_masked(t, left_words<8 - bits>(x), all_words(field << 8));
    t = or_masked(t, left_words<2 * (8 - bits)>(x), all_words(field << 16));
    return or_masked(t, left_words<3 * (8 - bits)>(x), all_words(field << 24));
}

template <int bits>
STRATA_OP void put_planes(Bytes fields, std::uint8_t* out) {
    STRATA_UNROLL for (int i = 0; i < bits; ++i) put_bits(out + 8 * i, nonzero_bytes(and_bytes(fields, all_bytes(1 << i))));
}

// 8 words of row numbers, 8 times three times 64 high bits of the numbers, a word of nibbles (sub-scale, sign of the
// eighth), d.
struct IQ1_S : Large<512 + 192 + 64 + 32, 50>, Traits<4, Sub::block, Min::none, true> {
    static constexpr int number = 19;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        std::uint64_t high[3];
        get_bits<3>(group + 512 + 24 * b, high);
        const Bytes signs = repeat_low_byte(and_bytes(right_words<4 * b + 1>(word(group, 11)), all_words(4)));
        block_codes(word(group, b), high, signs, signs, w);
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        s.sub[0] = odd_field<4 * b, 3>(word(group, 11));
        s.d[0] = eighth_of(group + 768);
    }
    template <int b>
    STRATA_OP void pack_high(const Bytes v[4], std::uint8_t* out) {
        put_planes<3>(four_fields<b, 3>(v[b / 2]), out + 24 * b);
        if constexpr (b + 1 < 8) pack_high<b + 1>(v, out);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_words(rows, at + 2, 8, group);
        Bytes v[4], nibbles = all_bytes(0);
        transpose_rows(rows, at + 34, v);
        pack_high<0>(v, group + 512);
        STRATA_UNROLL for (int i = 3; i >= 0; --i) {
            nibbles = or_bytes(left_words<4>(nibbles), right_words<28>(v[i]));
            nibbles = or_bytes(left_words<4>(nibbles), and_bytes(right_words<12>(v[i]), all_words(15)));
        }
        store_bytes(group + 704, nibbles);
        pack_halves(rows, at, group + 768);
    }
};

// 8 words of row numbers, 8 times four times 64 bits (three high bits of the numbers, signs of the eighths), two words of
// four times three bits of sub-scale a half, d.
struct IQ1_M : Large<512 + 256 + 128 + 32, 56>, Traits<4, Sub::half, Min::none, true> {
    static constexpr int number = 29;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        std::uint64_t high[4];
        get_bits<4>(group + 512 + 32 * b, high);
        const Bytes signs = bytes_where(high[3], 4), low_half = all_words(0xFFFF);
        block_codes(word(group, b), high, select_bits(low_half, signs, left_words<16>(signs)),
                    select_bits(low_half, right_words<16>(signs), signs), w);
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        const Bytes v = word(group, 12 + b / 4);
        s.sub[0] = odd_field<b / 2 % 2 * 16 + b % 2 * 6, 3>(v);
        s.sub[1] = odd_field<b / 2 % 2 * 16 + b % 2 * 6 + 3, 3>(v);
        s.d[0] = eighth_of(group + 896);
    }
    template <int b>
    STRATA_OP void pack_high(const Bytes v[4], std::uint8_t* out) {
        put_planes<4>(four_fields<b, 4>(v[b / 2]), out + 32 * b);
        if constexpr (b + 1 < 8) pack_high<b + 1>(v, out);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_words(rows, at, 8, group);
        Bytes v[4];
        transpose_rows(rows, at + 32, v);
        pack_high<0>(v, group + 512);
        transpose_rows(rows, at + 40, v);
        store_bytes(group + 768, v[2]);
        store_bytes(group + 832, v[3]);
        // d's nibbles are the tops of four 16-bit words, lowest first.
        Bytes d = and_bytes(right_words<12>(v[2]), all_words(0xF));
        d = or_masked(d, right_words<24>(v[2]), all_words(0xF0));
        d = or_masked(d, right_words<4>(v[3]), all_words(0xF00));
        store_low_halves(group + 896, or_masked(d, right_words<16>(v[3]), all_words(0xF000)));
    }
};

}  // namespace

void fill_product_grid_iq1(Kernels& k) {
    add_format<IQ1_S>(k);
    add_format<IQ1_M>(k);
}

}  // namespace STRATA_ISA
}  // namespace strata
