// What the product files of native/kernels share: packing the file's words and float16 of 16 rows side by side, groups that are one
// block of 256 of the file, and IQ4's codebook.
#pragma once
#include "product_rows.h"

namespace strata {
namespace STRATA_ISA {
namespace {

// bytes: of a group; file: of a block in the file.
template <std::size_t bytes, std::size_t file>
struct Large {
    static constexpr std::size_t blocks = 8;
    static constexpr std::size_t group_bytes(std::size_t) { return bytes; }
    static constexpr std::size_t file_bytes(std::size_t) { return file; }
};

STRATA_OP Bytes word(const std::uint8_t* group, int i) { return load_bytes(group + 64 * i); }

// `count` words of each row (a multiple of four).
STRATA_OP void pack_words(const std::uint8_t* const rows[16], std::size_t at, int count, std::uint8_t* out) {
    STRATA_UNROLL for (int i = 0; i < count; i += 4) {
        Bytes v[4];
        transpose_rows(rows, at + 4 * i, v);
        for (int j = 0; j < 4; ++j) store_bytes(out + 64 * (i + j), v[j]);
    }
}

// One word of each row, where 16 bytes could reach beyond the row.
STRATA_OP Bytes one_word(const std::uint8_t* const rows[16], std::size_t at) {
    std::int32_t words[16];
    for (int r = 0; r < 16; ++r) words[r] = word_at(rows[r] + at);
    return load_bytes(words);
}

// A float16 of each row, with the bits of `flip` inverted.
STRATA_OP void pack_halves(const std::uint8_t* const rows[16], std::size_t at, std::uint8_t* out, unsigned flip = 0) {
    for (int r = 0; r < 16; ++r) {
        std::uint16_t half;
        __builtin_memcpy(&half, rows[r] + at, 2);
        half = static_cast<std::uint16_t>(half ^ flip);
        __builtin_memcpy(out + 2 * r, &half, 2);
    }
}

// IQ4's codebook plus 128: IQ4_NL and IQ4_XS.
STRATA_OP Bytes iq4_table() {
    alignas(16) static const std::uint8_t codes[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
    return table16(codes);
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
