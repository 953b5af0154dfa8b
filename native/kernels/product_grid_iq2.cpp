// Codebook rows of eight elements in three levels: IQ2_XXS, IQ2_XS, IQ2_S. A block has four row numbers, two a half.
#include "product_grid.h"

namespace strata {
namespace STRATA_ISA {

void fill_product_grid_iq2(Kernels&);

namespace {

// Codes by level (two bits), those of negative elements after the others; bit 3 of an index does not count.
alignas(16) const std::uint8_t iq2_codes[16] = {72, 89, 107, 64, 56, 39, 21, 64, 72, 89, 107, 64, 56, 39, 21, 64};

template <int half, int s>
STRATA_OP Bytes signed_code(Bytes table, Bytes levels, Bytes signs) {
    return lookup_low(table, select_bits(all_bytes(3), right<2 * s>(levels), right<4 * half + s - 2>(signs)));
}

template <int half>
STRATA_OP void half_codes(Bytes levels, Bytes signs, Bytes table, Bytes w[4]) {
    w[0] = signed_code<half, 0>(table, levels, signs);
    w[1] = signed_code<half, 1>(table, levels, signs);
    w[2] = signed_code<half, 2>(table, levels, signs);
    w[3] = signed_code<half, 3>(table, levels, signs);
}

template <int entries>
STRATA_OP void block_codes(const Codebook<entries>& book, Bytes low, const std::uint64_t* high, Bytes signs, Bytes w[8]) {
    const Bytes table = table16(iq2_codes), low_half = all_words(0xFFFF);
    Bytes first, second;  // elements 0..3 and 4..7 of four rows of the codebook
    rows_at(book, low, high, first, second);
    half_codes<0>(select_bits(low_half, first, left_words<16>(second)), signs, table, w);
    half_codes<1>(select_bits(low_half, right_words<16>(first), second), signs, table, w + 4);
}

// Sub-scales of the halves of block b, four bits each, in two words.
template <int b>
STRATA_OP void half_scales(const std::uint8_t* words, Scales& s) {
    const Bytes v = word(words, b / 4);
    s.sub[0] = odd_field<b % 4 * 8>(v);
    s.sub[1] = odd_field<b % 4 * 8 + 4>(v);
}

STRATA_OP Floats eighth_of(const std::uint8_t* halves) { return mul(halves_at(halves), all_floats(0.125f)); }

// 8 words of row numbers, 8 of signs, one of sub-scales, d.
struct IQ2_XXS : Large<512 + 512 + 64 + 32, 66>, Traits<6, Sub::block, Min::none, true> {
    static constexpr int number = 16;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        block_codes(codebooks.iq2_xxs, word(group, b), nullptr, word(group, 8 + b), w);
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        s.sub[0] = odd_field<4 * b>(word(group, 16));
        s.d[0] = eighth_of(group + 1088);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        Bytes subs = all_bytes(0);
        STRATA_UNROLL for (int b = 6; b >= 0; b -= 2) {
            Bytes v[4];
            transpose_rows(rows, at + 2 + 8 * b, v);
            subs = or_bytes(left_words<4>(subs), right_words<28>(v[3]));
            subs = or_bytes(left_words<4>(subs), right_words<28>(v[1]));
            STRATA_UNROLL for (int i = 0; i < 2; ++i) {
                store_bytes(group + 64 * (b + i), v[2 * i]);
                store_bytes(group + 512 + 64 * (b + i), packed_signs(v[2 * i + 1]));
            }
        }
        store_bytes(group + 1024, subs);
        pack_halves(rows, at, group + 1088);
    }
};

// 8 words of row numbers, 8 of signs, 8 times 64 ninth bits of the numbers, two words of sub-scales, d.
struct IQ2_XS : Large<512 + 512 + 64 + 128 + 32, 74>, Traits<6, Sub::half, Min::none, true> {
    static constexpr int number = 17;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        std::uint64_t high[1];
        get_bits<1>(group + 1024 + 8 * b, high);
        block_codes(codebooks.iq2_xs, word(group, b), high, word(group, 8 + b), w);
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        half_scales<b>(group + 1088, s);
        s.d[0] = eighth_of(group + 1216);
    }
    // Two words of a block hold four numbers of nine bits, each with seven signs above it.
    STRATA_OP void pack_block(Bytes v, Bytes u, int b, std::uint8_t* group) {
        const Bytes low = all_words(0xFF), second = all_words(0xFF00), third = all_words(0xFF0000);
        const Bytes pair = or_masked(and_bytes(v, low), right_words<8>(v), second);
        const Bytes upper = or_masked(and_bytes(left_words<16>(u), third), left_words<8>(u), all_words(-0x1000000));
        store_bytes(group + 64 * b, or_bytes(pair, upper));
        Bytes odd = or_masked(and_bytes(right_words<8>(v), low), right_words<16>(v), second);
        odd = or_masked(odd, left_words<8>(u), third);
        odd = or_masked(odd, u, all_words(-0x1000000));  // bytes of the ninth bit and the signs
        put_bits(group + 1024 + 8 * b, nonzero_bytes(and_bytes(odd, all_bytes(1))));
        store_bytes(group + 512 + 64 * b, sign_words(even_signs(and_bytes(right<1>(odd), all_bytes(127)))));
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        Bytes v[4];
        STRATA_UNROLL for (int b = 0; b < 8; b += 2) {
            transpose_rows(rows, at + 2 + 8 * b, v);
            pack_block(v[0], v[1], b, group);
            pack_block(v[2], v[3], b + 1, group);
        }
        transpose_rows(rows, at + 58, v);
        store_bytes(group + 1088, v[2]);
        store_bytes(group + 1152, v[3]);
        pack_halves(rows, at, group + 1216);
    }
};

// 8 words of row numbers, 8 of signs, 8 times twice 64 high bits of the numbers, two words of sub-scales, d.
struct IQ2_S : Large<512 + 512 + 128 + 128 + 32, 82>, Traits<6, Sub::half, Min::none, true> {
    static constexpr int number = 22;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        std::uint64_t high[2];
        get_bits<2>(group + 1024 + 16 * b, high);
        block_codes(codebooks.iq2_s, word(group, b), high, word(group, 8 + b), w);
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        half_scales<b>(group + 1152, s);
        s.d[0] = eighth_of(group + 1280);
    }
    template <int b>
    STRATA_OP void pack_high(const Bytes v[4], std::uint8_t* out) {
        const Bytes bits = repeat_byte<b % 4>(v[b / 4]);  // two bits a row number
        put_bits(out + 16 * b, nonzero_bytes(and_bytes(bits, all_words(0x40100401))));
        put_bits(out + 16 * b + 8, nonzero_bytes(and_bytes(bits, all_words(static_cast<std::int32_t>(0x80200802)))));
        if constexpr (b + 1 < 8) pack_high<b + 1>(v, out);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_words(rows, at + 2, 16, group);
        STRATA_UNROLL for (int b = 8; b < 16; ++b) store_bytes(group + 64 * b, sign_words(word(group, b)));
        Bytes v[4];
        transpose_rows(rows, at + 66, v);
        pack_high<0>(v, group + 1024);
        store_bytes(group + 1152, v[2]);
        store_bytes(group + 1216, v[3]);
        pack_halves(rows, at, group + 1280);
    }
};

}  // namespace

void fill_product_grid_iq2(Kernels& k) {
    add_format<IQ2_XXS>(k);
    add_format<IQ2_XS>(k);
    add_format<IQ2_S>(k);
}

}  // namespace STRATA_ISA
}  // namespace strata
