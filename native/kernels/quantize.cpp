// Rows to blocks of 32 int8 with a scale; docs/arithmetic.md, section 3.
//
// `transposed` holds q in the order that formats with codebook rows or neighbours in one byte need: byte 16 h + 4 s + p
// of a block is element 16 h + s + {0, 8, 4, 12}[p]. Sums of integers are exact in any order.
#include "kernels.h"

namespace strata {
namespace STRATA_ISA {
namespace {

std::uint32_t bits(float x) {
    std::uint32_t u;
    __builtin_memcpy(&u, &x, 4);
    return u;
}

float of_bits(std::uint32_t u) {
    float x;
    __builtin_memcpy(&x, &u, 4);
    return x;
}

constexpr std::uint32_t infinity = 0x7F800000, tiny = 0x21800000;  // tiny = 2^-60
constexpr std::size_t order[4] = {0, 8, 4, 12};

void quantize_block(const float* x, std::size_t count, Record& r, std::int8_t* transposed) {
    std::uint32_t top = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t magnitude = bits(x[i]) & 0x7FFFFFFF;
        top = magnitude > top ? magnitude : top;
    }
    std::int32_t sums[2] = {0, 0};
    if (top < tiny || top >= infinity) {
        for (std::size_t i = 0; i < block; ++i) r.q[i] = transposed[i] = 0;
        r.scale = top < tiny ? 0.0f : of_bits(0x7FC00000);
    } else {
        const float amax = of_bits(top), inverse = 127.0f / amax;
        for (std::size_t i = 0; i < block; ++i) {
            const float scaled = (i < count ? x[i] : 0.0f) * inverse;
            const float shifted = scaled + 12582912.0f;
            r.q[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(bits(shifted) - 0x4B400000u));
            sums[i / 16] += r.q[i];
        }
        for (std::size_t i = 0; i < block; ++i) transposed[i] = r.q[i / 16 * 16 + i / 4 % 4 + order[i % 4]];
        r.scale = amax / 127.0f;
    }
    const std::int32_t all[3] = {sums[0], sums[1], sums[0] + sums[1]};
    for (int i = 0; i < 3; ++i) {
        r.minus_sum[i] = -128 * all[i];
        r.sum[i] = static_cast<float>(all[i]);
    }
    for (int i = 0; i < 2; ++i) r.sums[i] = static_cast<std::int16_t>(sums[i]);
}

void quantize_rows(const Activations& a, std::size_t first, std::size_t last) {
    for (std::size_t row = first; row < last; ++row)
        for (std::size_t b = 0; b < a.blocks; ++b) {
            const std::size_t left = a.k - b * block;
            quantize_block(a.x + row * a.k + b * block, left < block ? left : block, a.records[row * a.stride + b],
                           a.transposed + (row * a.stride + b) * block);
        }
}

}  // namespace

void fill_quantize(Kernels& k) { k.quantize_rows = quantize_rows; }

}  // namespace STRATA_ISA
}  // namespace strata
