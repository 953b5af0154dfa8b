// Codebook rows of four elements in eight levels: IQ3_XXS, IQ3_S. A block has eight row numbers, four a half.
#include "product_grid.h"

namespace strata {
namespace STRATA_ISA {

void fill_product_grid_iq3(Kernels&);

namespace {

// Codes by level, those of negative elements after the others.
alignas(16) const std::uint8_t iq3_xxs_codes[16] = {68, 76, 84, 92, 100, 108, 116, 126, 60, 52, 44, 36, 28, 20, 12, 2};
alignas(16) const std::uint8_t iq3_s_codes[16] = {17, 19, 21, 23, 25, 27, 29, 31, 15, 13, 11, 9, 7, 5, 3, 1};

// A level's nibble has its top bit free: the sign goes there.
template <int half, int s>
STRATA_OP Bytes signed_code(Bytes table, Bytes nibbles, Bytes signs) {
    return lookup_low(table, select_bits(all_bytes(8), right<4 * half + s - 3>(signs), nibbles));
}

template <int half, int entries>
STRATA_OP void half_codes(const Codebook<entries>& book, Bytes low, const std::uint64_t* high, Bytes signs, Bytes table,
                          Bytes w[4]) {
    Bytes first, second;
    rows_at(book, low, high, first, second);
    w[0] = signed_code<half, 0>(table, first, signs);
    w[1] = signed_code<half, 1>(table, right<4>(first), signs);
    w[2] = signed_code<half, 2>(table, second, signs);
    w[3] = signed_code<half, 3>(table, right<4>(second), signs);
}

// Row numbers of 16 half blocks, byte p the one of element 4 * {0, 2, 1, 3}[p].
STRATA_OP void pack_numbers(const std::uint8_t* const rows[16], std::size_t at, std::uint8_t* out) {
    pack_words(rows, at, 16, out);
    STRATA_UNROLL for (int i = 0; i < 16; ++i) store_bytes(out + 64 * i, swap_middle(word(out, i)));
}

// 16 words of row numbers, 8 of signs, one of sub-scales, d.
struct IQ3_XXS : Large<1024 + 512 + 64 + 32, 98>, Traits<6, Sub::block, Min::none, true> {
    static constexpr int number = 18;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        const Bytes signs = word(group + 1024, b), table = table16(iq3_xxs_codes);
        half_codes<0>(codebooks.iq3_xxs, word(group, 2 * b), nullptr, signs, table, w);
        half_codes<1>(codebooks.iq3_xxs, word(group, 2 * b + 1), nullptr, signs, table, w + 4);
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        s.sub[0] = odd_field<4 * b>(word(group, 24));
        s.d[0] = mul(halves_at(group + 1600), all_floats(0.25f));
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_numbers(rows, at + 2, group);
        pack_words(rows, at + 66, 8, group + 1024);
        Bytes subs = all_bytes(0);
        STRATA_UNROLL for (int b = 7; b >= 0; --b) {
            const Bytes v = word(group + 1024, b);
            subs = or_bytes(left_words<4>(subs), right_words<28>(v));
            store_bytes(group + 1024 + 64 * b, packed_signs(v));
        }
        store_bytes(group + 1536, subs);
        pack_halves(rows, at, group + 1600);
    }
};

// 16 words of row numbers, 8 of signs, 16 times 64 ninth bits of the numbers, one word of sub-scales, d.
struct IQ3_S : Large<1024 + 512 + 128 + 64 + 32, 110>, Traits<4, Sub::block, Min::none, true> {
    static constexpr int number = 21;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        const Bytes signs = word(group + 1024, b), table = table16(iq3_s_codes);
        std::uint64_t high[2];
        get_bits<2>(group + 1536 + 16 * b, high);
        half_codes<0>(codebooks.iq3_s, word(group, 2 * b), high, signs, table, w);
        half_codes<1>(codebooks.iq3_s, word(group, 2 * b + 1), high + 1, signs, table, w + 4);
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        s.sub[0] = odd_field<4 * b>(word(group, 26));
        s.d[0] = halves_at(group + 1728);
    }
    template <int b>
    STRATA_OP void pack_high(const Bytes v[2], std::uint8_t* out) {
        const Bytes bits = repeat_byte<b % 4>(v[b / 4]);
        put_bits(out + 16 * b, nonzero_bytes(and_bytes(bits, all_words(0x08020401))));
        put_bits(out + 16 * b + 8, nonzero_bytes(and_bytes(bits, all_words(static_cast<std::int32_t>(0x80204010)))));
        if constexpr (b + 1 < 8) pack_high<b + 1>(v, out);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_numbers(rows, at + 2, group);
        pack_words(rows, at + 74, 8, group + 1024);
        STRATA_UNROLL for (int b = 0; b < 8; ++b) store_bytes(group + 1024 + 64 * b, sign_words(word(group + 1024, b)));
        Bytes high[4];
        transpose_rows(rows, at + 66, high);
        pack_high<0>(high, group + 1536);
        store_bytes(group + 1664, one_word(rows, at + 106));
        pack_halves(rows, at, group + 1728);
    }
};

}  // namespace

void fill_product_grid_iq3(Kernels& k) {
    add_format<IQ3_XXS>(k);
    add_format<IQ3_S>(k);
}

}  // namespace STRATA_ISA
}  // namespace strata
