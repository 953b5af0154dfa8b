// Formats of 256-blocks with plain bit fields: Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_XS TQ1_0 TQ2_0.
//
// A group is one block of the file: its quant bytes as 32-bit words of 16 rows side by side (word i at 64 i), then
// sub-scales and minimums as bytes of such words, then d and dmin (16 float16 each).
#include "product_groups.h"

namespace strata {
namespace STRATA_ISA {

void fill_product_k(Kernels&);

namespace {

template <int b>
STRATA_OP void sub_of_block(const std::uint8_t* words, Floats& sub) {
    sub = to_floats(signed_byte<b % 4>(word(words, b / 4)));
}

template <int b>
STRATA_OP void subs_of_halves(const std::uint8_t* words, Floats sub[2]) {
    const Bytes v = word(words, b / 2);
    sub[0] = to_floats(signed_byte<b % 2 * 2>(v));
    sub[1] = to_floats(signed_byte<b % 2 * 2 + 1>(v));
}

// The 6-bit scales and minimums of Q4_K and Q5_K from their first 16 bytes: d and dmin, then 12 packed bytes.
STRATA_OP void pack_scales_and_minimums(const std::uint8_t* const rows[16], std::size_t at, std::uint8_t* out) {
    Bytes v[4];
    transpose_rows(rows, at, v);
    const Bytes six = all_bytes(63), four = all_bytes(15), top = all_bytes(48);
    store_bytes(out, and_bytes(v[1], six));
    store_bytes(out + 64, or_bytes(and_bytes(v[3], four), and_bytes(right<2>(v[1]), top)));
    store_bytes(out + 128, and_bytes(v[2], six));
    store_bytes(out + 192, or_bytes(and_bytes(right<4>(v[3]), four), and_bytes(right<2>(v[2]), top)));
    store_low_halves(out + 256, v[0]);
    store_low_halves(out + 288, right_words<16>(v[0]));
}

template <int b>
STRATA_OP void scales_and_minimums(const std::uint8_t* at, Scales& s) {
    s.d[0] = halves_at(at + 256);
    s.dmin = halves_at(at + 288);
    s.sub[0] = to_floats(unsigned_byte<b % 4>(word(at, b / 4)));
    s.minimum[0] = to_floats(unsigned_byte<b % 4>(word(at, 2 + b / 4)));
}

struct Q4_K : Large<2048 + 320, 144>, Traits<-1, Sub::block, Min::block> {
    static constexpr int number = 12;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        STRATA_UNROLL for (int i = 0; i < 8; ++i) w[i] = and_bytes(right<b % 2 * 4>(word(group, b / 2 * 8 + i)), all_bytes(15));
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        scales_and_minimums<b>(group + 2048, s);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_words(rows, at + 16, 32, group);
        pack_scales_and_minimums(rows, at, group + 2048);
    }
};

struct Q5_K : Large<2560 + 320, 176>, Traits<-1, Sub::block, Min::block> {
    static constexpr int number = 13;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        STRATA_UNROLL for (int i = 0; i < 8; ++i) {
            const Bytes low = and_bytes(right<b % 2 * 4>(word(group, b / 2 * 8 + i)), all_bytes(15));
            w[i] = or_masked(low, right<b - 4>(word(group, 32 + i)), all_bytes(16));
        }
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        scales_and_minimums<b>(group + 2560, s);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_words(rows, at + 48, 32, group);
        pack_words(rows, at + 16, 8, group + 2048);
        pack_scales_and_minimums(rows, at, group + 2560);
    }
};

// Runs of 128 elements: 64 bytes of nibbles (64 elements low, 64 high), 32 bytes of 2-bit planes.
struct Q6_K : Large<3072 + 256 + 32, 210>, Traits<5, Sub::half> {
    static constexpr int number = 14;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        constexpr int run = b / 4, plane = b % 4;
        STRATA_UNROLL for (int i = 0; i < 8; ++i) {
            const Bytes low = right<plane / 2 * 4>(word(group, run * 16 + plane % 2 * 8 + i));
            const Bytes high = right<plane * 2 - 4>(word(group, 32 + run * 8 + i));
            w[i] = or_masked(and_bytes(low, all_bytes(15)), high, all_bytes(48));
        }
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        subs_of_halves<b>(group + 3072, s.sub);
        s.d[0] = halves_at(group + 3072 + 256);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_words(rows, at, 52, group);
        pack_halves(rows, at + 208, group + 3072 + 256);
    }
};

// Runs of 128 elements in 32 bytes of 2-bit planes, from word `from` on.
template <int b>
STRATA_OP void two_bits(const std::uint8_t* group, Bytes w[8]) {
    STRATA_UNROLL for (int i = 0; i < 8; ++i) w[i] = and_bytes(right<b % 4 * 2>(word(group, b / 4 * 8 + i)), all_bytes(3));
}

struct Q2_K : Large<1024 + 256 + 64, 84>, Traits<-1, Sub::half, Min::half> {
    static constexpr int number = 10;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        two_bits<b>(group, w);
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        const Bytes v = word(group + 1024, b / 2), low = and_bytes(v, all_bytes(15)),
                    high = and_bytes(right<4>(v), all_bytes(15));
        s.sub[0] = to_floats(unsigned_byte<b % 2 * 2>(low));
        s.sub[1] = to_floats(unsigned_byte<b % 2 * 2 + 1>(low));
        s.minimum[0] = to_floats(unsigned_byte<b % 2 * 2>(high));
        s.minimum[1] = to_floats(unsigned_byte<b % 2 * 2 + 1>(high));
        s.d[0] = halves_at(group + 1280);
        s.dmin = halves_at(group + 1312);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_words(rows, at + 16, 16, group);
        pack_words(rows, at, 4, group + 1024);
        const Bytes d = one_word(rows, at + 80);
        store_low_halves(group + 1280, d);
        store_low_halves(group + 1312, right_words<16>(d));
    }
};

struct Q3_K : Large<1536 + 256 + 32, 110>, Traits<2, Sub::half> {
    static constexpr int number = 11;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        two_bits<b>(group, w);
        STRATA_UNROLL for (int i = 0; i < 8; ++i) w[i] = or_masked(w[i], right<b - 2>(word(group, 16 + i)), all_bytes(4));
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        subs_of_halves<b>(group + 1536, s.sub);
        s.d[0] = halves_at(group + 1792);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_words(rows, at + 32, 16, group);
        pack_words(rows, at, 8, group + 1024);
        // Low nibbles of 16 scales in bytes 0..7, their high bits in the 2-bit planes of bytes 8..11; minus 32.
        const Bytes first = one_word(rows, at + 96), second = one_word(rows, at + 100), high = one_word(rows, at + 104);
        const Bytes four = all_bytes(15), top = all_bytes(48), minus = all_bytes(-32);
        store_bytes(group + 1536, add_bytes(or_masked(and_bytes(first, four), right<-4>(high), top), minus));
        store_bytes(group + 1600, add_bytes(or_masked(and_bytes(second, four), right<-2>(high), top), minus));
        store_bytes(group + 1664, add_bytes(or_masked(and_bytes(right<4>(first), four), high, top), minus));
        store_bytes(group + 1728, add_bytes(or_masked(and_bytes(right<4>(second), four), right<2>(high), top), minus));
        pack_halves(rows, at + 108, group + 1792);
    }
};

struct IQ4_XS : Large<2048 + 128 + 32, 136>, Traits<7, Sub::block> {
    static constexpr int number = 23;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        const Bytes table = iq4_table(), low = all_bytes(15);
        STRATA_UNROLL for (int i = 0; i < 4; ++i) {
            const Bytes v = word(group, b * 4 + i);
            w[i] = lookup(table, and_bytes(v, low));
            w[i + 4] = lookup(table, and_bytes(right<4>(v), low));
        }
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        sub_of_block<b>(group + 2048, s.sub[0]);
        s.d[0] = halves_at(group + 2176);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_words(rows, at + 8, 32, group);
        for (int r = 0; r < 16; ++r) {
            const std::uint8_t* from = rows[r] + at;
            const unsigned high = from[2] | from[3] << 8;
            for (int b = 0; b < 8; ++b) {
                const unsigned six = (from[4 + b / 2] >> b % 2 * 4 & 15) | (high >> 2 * b & 3) << 4;
                group[2048 + b / 4 * 64 + 4 * r + b % 4] = static_cast<std::uint8_t>(six - 32);
            }
        }
        pack_halves(rows, at, group + 2176);
    }
};

struct TQ2_0 : Large<1024 + 32, 66>, Traits<0> {
    static constexpr int number = 35;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        two_bits<b>(group, w);
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        s.d[0] = halves_at(group + 1024);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_words(rows, at, 16, group);
        pack_halves(rows, at + 64, group + 1024);
    }
};

// Digit n of a byte x, a fraction in base 3: the integer part of 3 (3^n x mod 256) / 256.
template <int n>
STRATA_OP Bytes digit(Bytes x) {
    for (int i = 0; i < n; ++i) x = add_bytes(x, add_bytes(x, x));
    return add_bytes(above(x, 85), above(x, 170));
}

// Words 0..7: digit n is block n. Words 8..11: digit n is half block 10 + n. Word 12: digit n is word n of half block 15.
struct TQ1_0 : Large<832 + 32, 54>, Traits<0> {
    static constexpr int number = 34;
    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        if constexpr (b < 5) {
            STRATA_UNROLL for (int i = 0; i < 8; ++i) w[i] = digit<b>(word(group, i));
        } else {
            STRATA_UNROLL for (int i = 0; i < 4; ++i) w[i] = digit<(b - 5) * 2>(word(group, 8 + i));
            if constexpr (b < 7) {
                STRATA_UNROLL for (int i = 0; i < 4; ++i) w[4 + i] = digit<(b - 5) * 2 + 1>(word(group, 8 + i));
            } else {
                const Bytes v = word(group, 12);
                w[4] = digit<0>(v);
                w[5] = digit<1>(v);
                w[6] = digit<2>(v);
                w[7] = digit<3>(v);
            }
        }
    }
    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        s.d[0] = halves_at(group + 832);
    }
    static void pack(const std::uint8_t* const rows[16], std::size_t at, std::size_t, std::uint8_t* group) {
        pack_words(rows, at, 12, group);
        store_bytes(group + 768, one_word(rows, at + 48));
        pack_halves(rows, at + 52, group + 832);
    }
};

}  // namespace

void fill_product_k(Kernels& k) {
    add_format<Q4_K>(k);
    add_format<Q5_K>(k);
    add_format<Q6_K>(k);
    add_format<Q2_K>(k);
    add_format<Q3_K>(k);
    add_format<IQ4_XS>(k);
    add_format<TQ1_0>(k);
    add_format<TQ2_0>(k);
}

}  // namespace STRATA_ISA
}  // namespace strata
