// Formats of 4-bit codes, some with a fifth bit in a plane of its own, in blocks of 32 with a scale each: Q4_0 Q4_1 Q5_0
// Q5_1 IQ4_NL MXFP4 NVFP4; Q8_0, whole bytes; and Q2_0, 2-bit codes.
//
// Group of four blocks: the quants of all, then the scales of all.
#include "product_groups.h"

namespace strata {
namespace STRATA_ISA {

void fill_product_nibbles(Kernels&);

namespace {

STRATA_OP void split_nibbles(const std::uint8_t* quants, Bytes w[8]) {
    const Bytes low = all_bytes(15);
    STRATA_UNROLL for (int i = 0; i < 4; ++i) {
        const Bytes v = load_bytes(quants + 64 * i);
        w[i] = and_bytes(v, low);
        w[i + 4] = and_bytes(right<4>(v), low);
    }
}

// quant: bytes of a block's quants, scale: of its scales, file: of the block in the file.
template <std::size_t quant, std::size_t scale, std::size_t file>
struct Small {
    static constexpr std::size_t blocks = 4;
    static constexpr std::size_t group_bytes(std::size_t nb) { return nb * (quant + scale); }
    static constexpr std::size_t file_bytes(std::size_t nb) { return nb * file; }
    static const std::uint8_t* scale_at(const std::uint8_t* group, std::size_t nb, int b) {
        return group + nb * quant + b * scale;
    }
};

// With a float16 as scale; with a second one as minimum.
template <std::size_t quant, std::size_t file>
struct OneHalf : Small<quant, 32, file> {
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t nb, Scales& s) {
        s.d[0] = halves_at(OneHalf::scale_at(group, nb, b));
    }
};
template <std::size_t quant, std::size_t file>
struct TwoHalves : Small<quant, 64, file> {
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t nb, Scales& s) {
        s.d[0] = halves_at(TwoHalves::scale_at(group, nb, b));
        s.dmin = halves_at(TwoHalves::scale_at(group, nb, b) + 32);
    }
};

struct Q4_0 : OneHalf<256, 18>, Traits<3> {
    static constexpr int number = 2;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        split_nibbles(group + b * 256, w);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t nb, std::uint8_t* group) {
        for (std::size_t b = 0; b < nb; ++b) {
            pack_words(rows, at + b * 18 + 2, 4, group + b * 256);
            pack_halves(rows, at + b * 18, group + nb * 256 + b * 32);
        }
    }
};

struct Q4_1 : TwoHalves<256, 20>, Traits<-1, Sub::none, Min::one> {
    static constexpr int number = 3;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        split_nibbles(group + b * 256, w);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t nb, std::uint8_t* group) {
        for (std::size_t b = 0; b < nb; ++b) {
            pack_words(rows, at + b * 20 + 4, 4, group + b * 256);
            pack_halves(rows, at + b * 20, group + nb * 256 + b * 64);
            pack_halves(rows, at + b * 20 + 2, group + nb * 256 + b * 64 + 32, 0x8000);  // the file adds m
        }
    }
};

// Fifth bits: bit i of byte p of a row's word belongs to element 4 i + p.
STRATA_OP void add_fifth_bits(Bytes plane, Bytes w[8]) {
    const Bytes bit = all_bytes(16);
    w[0] = or_masked(w[0], right<-4>(plane), bit);
    w[1] = or_masked(w[1], right<-3>(plane), bit);
    w[2] = or_masked(w[2], right<-2>(plane), bit);
    w[3] = or_masked(w[3], right<-1>(plane), bit);
    w[4] = or_masked(w[4], plane, bit);
    w[5] = or_masked(w[5], right<1>(plane), bit);
    w[6] = or_masked(w[6], right<2>(plane), bit);
    w[7] = or_masked(w[7], right<3>(plane), bit);
}

// From the file's order (bit 4 i + p): the 8 x 4 matrix of bits is transposed, in three exchanges of bits of the index.
STRATA_OP std::uint32_t exchange(std::uint32_t x, std::uint32_t mask, int distance) {
    const std::uint32_t t = (x >> distance ^ x) & mask;
    return x ^ t ^ t << distance;
}

STRATA_OP void pack_fifth_bits(const std::uint8_t* const rows[16], std::size_t at, std::uint8_t* out) {
    for (int r = 0; r < 16; ++r) {
        std::uint32_t x = static_cast<std::uint32_t>(word_at(rows[r] + at));
        x = exchange(x, 0x00AA00AAu, 7);   // index bits 0 and 3
        x = exchange(x, 0x0000CCCCu, 14);  // 1 and 4
        x = exchange(x, 0x22222222u, 1);   // 0 and 1
        x = exchange(x, 0x0A0A0A0Au, 3);   // 0 and 2
        __builtin_memcpy(out + 4 * r, &x, 4);
    }
}

struct Q5_0 : OneHalf<320, 22>, Traits<4> {
    static constexpr int number = 6;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        split_nibbles(group + b * 320, w);
        add_fifth_bits(load_bytes(group + b * 320 + 256), w);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t nb, std::uint8_t* group) {
        for (std::size_t b = 0; b < nb; ++b) {
            pack_words(rows, at + b * 22 + 6, 4, group + b * 320);
            pack_fifth_bits(rows, at + b * 22 + 2, group + b * 320 + 256);
            pack_halves(rows, at + b * 22, group + nb * 320 + b * 32);
        }
    }
};

struct Q5_1 : TwoHalves<320, 24>, Traits<-1, Sub::none, Min::one> {
    static constexpr int number = 7;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        split_nibbles(group + b * 320, w);
        add_fifth_bits(load_bytes(group + b * 320 + 256), w);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t nb, std::uint8_t* group) {
        for (std::size_t b = 0; b < nb; ++b) {
            pack_words(rows, at + b * 24 + 8, 4, group + b * 320);
            pack_fifth_bits(rows, at + b * 24 + 4, group + b * 320 + 256);
            pack_halves(rows, at + b * 24, group + nb * 320 + b * 64);
            pack_halves(rows, at + b * 24 + 2, group + nb * 320 + b * 64 + 32, 0x8000);
        }
    }
};

struct Q8_0 : OneHalf<512, 34>, Traits<7> {
    static constexpr int number = 8;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        STRATA_UNROLL for (int i = 0; i < 8; ++i) w[i] = load_bytes(group + b * 512 + 64 * i);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t nb, std::uint8_t* group) {
        for (std::size_t b = 0; b < nb; ++b) {
            STRATA_UNROLL for (int half = 0; half < 2; ++half) {
                Bytes v[4];
                transpose_rows(rows, at + b * 34 + 2 + 16 * half, v);
                STRATA_UNROLL for (int i = 0; i < 4; ++i)
                    store_bytes(group + b * 512 + 256 * half + 64 * i, xor_bytes(v[i], all_bytes(128)));
            }
            pack_halves(rows, at + b * 34, group + nb * 512 + b * 32);
        }
    }
};

// Doubled e2m1 plus 16.
alignas(16) const std::uint8_t e2m1_codes[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

STRATA_OP void look_up(Bytes table, Bytes w[8]) {
    STRATA_UNROLL for (int i = 0; i < 8; ++i) w[i] = lookup(table, w[i]);
}

struct IQ4_NL : OneHalf<256, 18>, Traits<7> {
    static constexpr int number = 20;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        split_nibbles(group + b * 256, w);
        look_up(iq4_table(), w);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t nb, std::uint8_t* group) {
        Q4_0::pack(rows, at, nb, group);
    }
};

struct MXFP4 : Small<256, 16, 17>, Traits<4> {
    static constexpr int number = 39;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        split_nibbles(group + b * 256, w);
        look_up(table16(e2m1_codes), w);
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t nb, Scales& s) {
        s.d[0] = half_e8m0_at(scale_at(group, nb, b));
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t nb, std::uint8_t* group) {
        for (std::size_t b = 0; b < nb; ++b) {
            pack_words(rows, at + b * 17 + 1, 4, group + b * 256);
            for (int r = 0; r < 16; ++r) group[nb * 256 + b * 16 + r] = rows[r][at + b * 17];
        }
    }
};

// The file's block is two of ours: four scales, then 8 bytes for each 16 elements (the first 8 low, the others high).
struct NVFP4 : Small<256, 32, 18>, Traits<4, Sub::none, Min::none, false, true> {
    static constexpr int number = 40;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        Bytes v[8];
        split_nibbles(group + b * 256, v);
        look_up(table16(e2m1_codes), v);
        STRATA_UNROLL for (int half = 0; half < 2; ++half)
            STRATA_UNROLL for (int i = 0; i < 2; ++i) {
                w[4 * half + i] = v[2 * half + i];
                w[4 * half + 2 + i] = v[4 + 2 * half + i];
            }
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t nb, Scales& s) {
        s.d[0] = half_ue4m3_at(scale_at(group, nb, b));
        s.d[1] = half_ue4m3_at(scale_at(group, nb, b) + 16);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t nb, std::uint8_t* group) {
        for (std::size_t b = 0; b < nb; ++b) {
            const std::size_t from = at + b / 2 * 36;
            pack_words(rows, from + 4 + b % 2 * 16, 4, group + b * 256);
            STRATA_UNROLL for (int half = 0; half < 2; ++half)
                for (int r = 0; r < 16; ++r) {
                    const int scale = rows[r][from + b % 2 * 2 + half];  // 0x7F is zero, 0xFF is not
                    group[nb * 256 + b * 32 + half * 16 + r] = static_cast<std::uint8_t>(scale == 0x7F ? 0 : scale & 0x7F);
                }
        }
    }
};

// The file's block is two of ours, four neighbours a byte; a scale for both.
struct Q2_0 : Traits<0, Sub::none, Min::none, true> {
    static constexpr int number = 42;
    static constexpr std::size_t blocks = 4;
    static constexpr std::size_t group_bytes(std::size_t nb) { return nb * 128 + nb / 2 * 32; }
    static constexpr std::size_t file_bytes(std::size_t nb) { return nb / 2 * 18; }
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        const Bytes two = all_bytes(3);
        STRATA_UNROLL for (int half = 0; half < 2; ++half) {
            const Bytes v = load_bytes(group + b * 128 + half * 64);
            w[4 * half] = and_bytes(v, two);
            w[4 * half + 1] = and_bytes(right<2>(v), two);
            w[4 * half + 2] = and_bytes(right<4>(v), two);
            w[4 * half + 3] = and_bytes(right<6>(v), two);
        }
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t nb, Scales& s) {
        s.d[0] = halves_at(group + nb * 128 + b / 2 * 32);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t nb, std::uint8_t* group) {
        for (std::size_t i = 0; i < nb / 2; ++i) {
            Bytes v[4];
            transpose_rows(rows, at + i * 18 + 2, v);
            STRATA_UNROLL for (int j = 0; j < 4; ++j) store_bytes(group + i * 256 + 64 * j, swap_middle(v[j]));
            pack_halves(rows, at + i * 18, group + nb * 128 + i * 32);
        }
    }
};

}  // namespace

void fill_product_nibbles(Kernels& k) {
    add_format<Q4_0>(k);
    add_format<Q4_1>(k);
    add_format<Q5_0>(k);
    add_format<Q5_1>(k);
    add_format<Q8_0>(k);
    add_format<IQ4_NL>(k);
    add_format<MXFP4>(k);
    add_format<NVFP4>(k);
    add_format<Q2_0>(k);
}

}  // namespace STRATA_ISA
}  // namespace strata
