// What the codebook formats share: signs, odd sub-scales, and the order of elements inside a block.
//
// A row of the codebook gives neighbours of one weight row, but byte p of a lane has to be the same element for all 64
// look-ups of a vector. So these formats are `transposed`: byte p of word s of half h is element 16 h + s + {0, 8, 4, 12}[p].
// Bit 4 h + s of byte p of a sign word belongs to it.
#pragma once
#include "product_groups.h"

namespace strata {
namespace STRATA_ISA {
namespace {

// Sixteen rows' sign words as the file has them (bit e: element e is negative) to the order above: bits 2 and 4 of the bit
// number change places.
STRATA_OP Bytes sign_words(Bytes v) {
    const Bytes t = and_bytes(xor_bytes(right_words<12>(v), v), all_words(0xF0F0));
    return xor_bytes(v, xor_bytes(t, left_words<12>(t)));
}

// Bytes of seven sign bits: the eighth makes the number of ones even.
STRATA_OP Bytes even_signs(Bytes v) {
    Bytes t = xor_bytes(v, right<4>(v));
    t = xor_bytes(t, right<2>(t));
    t = and_bytes(xor_bytes(t, right<1>(t)), all_bytes(1));
    return or_bytes(v, right<-7>(t));
}

// Four 7-bit sign codes in the low 28 bits of a word.
STRATA_OP Bytes packed_signs(Bytes v) {
    Bytes t = and_bytes(v, all_words(0x7F));
    t = or_masked(t, left_words<1>(v), all_words(0x7F00));
    t = or_masked(t, left_words<2>(v), all_words(0x7F0000));
    return sign_words(even_signs(or_masked(t, left_words<3>(v), all_words(0x7F000000))));
}

// 2 s + 1 with s in the `bits` lowest bits at bit `at` of each lane.
template <int at, int bits = 4>
STRATA_OP Floats odd_field(Bytes v) {
    constexpr int twice = ((1 << bits) - 1) * 2;
    const Bytes s = at == 0 ? left_words<1>(v) : right_words<at == 0 ? 0 : at - 1>(v);
    return to_floats(as_ints(or_bytes(and_bytes(s, all_words(twice)), all_words(1))));
}

STRATA_OP void put_bits(std::uint8_t* at, std::uint64_t bits) { __builtin_memcpy(at, &bits, 8); }

template <int count>
STRATA_OP void get_bits(const std::uint8_t* at, std::uint64_t bits[count]) {
    __builtin_memcpy(bits, at, 8 * count);
}

// The lowest byte of each lane, whose others are 0, in all four.
STRATA_OP Bytes repeat_low_byte(Bytes v) {
    const Bytes pair = or_bytes(v, left_words<8>(v));
    return or_bytes(pair, left_words<16>(pair));
}

// Byte i of each lane in all four.
template <int i>
STRATA_OP Bytes repeat_byte(Bytes v) {
    return repeat_low_byte(and_bytes(right_words<8 * i>(v), all_words(255)));
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
