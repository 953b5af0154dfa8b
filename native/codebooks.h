// Codebooks of the I-quants as the kernels look them up: the number of every element's level, never the element itself.
#pragma once
#include <cstddef>
#include <cstdint>

namespace strata {

// Rows of eight elements (IQ1, IQ2: 2-bit levels, elements 0..3 in the first plane, lowest first) or of four (IQ3: two
// nibbles a plane). `words` are the same rows, the first plane low.
template <int entries>
struct Codebook {
    alignas(64) std::uint8_t planes[2][entries];
    alignas(64) std::uint16_t words[entries];
};

struct Codebooks {
    Codebook<2048> iq1;
    Codebook<256> iq2_xxs, iq3_xxs;
    Codebook<512> iq2_xs, iq3_s;
    Codebook<1024> iq2_s;
};

// Set once, when the extension is loaded.
extern __attribute__((visibility("hidden"))) Codebooks codebooks;

// The rows of strata.formats.grids, signed bytes: (2048 | 256 | 512 | 1024, 8) and (256 | 512, 4).
struct Grids {
    const std::int8_t *iq1, *iq2_xxs, *iq2_xs, *iq2_s, *iq3_xxs, *iq3_s;
};
void set_codebooks(const Grids& grids);

}  // namespace strata
