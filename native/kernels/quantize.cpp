// Rows to blocks of 32 int8 with a scale; docs/arithmetic.md, section 3.
//
// `transposed` holds q in the order that formats with codebook rows or neighbours in one byte need: byte 16 h + 4 s + p
// of a block is element 16 h + s + {0, 8, 4, 12}[p]. Sums of integers are exact in any order.
#include "kernels.h"
#include "simd_math.h"

namespace strata {
namespace STRATA_ISA {
namespace {

constexpr std::uint32_t infinity = 0x7F800000, tiny = 0x21800000;  // tiny = 2^-60

STRATA_OP float of_pattern(std::uint32_t u) {
    float x;
    __builtin_memcpy(&x, &u, 4);
    return x;
}

STRATA_OP void quantize_block(const float* x, std::size_t count, Record& r, std::int8_t* transposed) {
    const Floats low = load_up_to(x, count), high = count > lanes ? load_up_to(x + lanes, count - lanes) : zero_floats();
    const std::uint32_t top = top_magnitude(low, high);
    std::int32_t sums[2] = {0, 0};
    if (top < tiny || top >= infinity) {
        __builtin_memset(r.q, 0, block);
        __builtin_memset(transposed, 0, block);
        r.scale = top < tiny ? 0.0f : of_pattern(0x7FC00000);
    } else {
        const float amax = of_pattern(top);
        const Floats inverse = all_floats(127.0f / amax), magic = all_floats(12582912.0f);
        const Floats shifted[2] = {add(mul(low, inverse), magic), add(mul(high, inverse), magic)};
        for (std::size_t h = 0; h < 2; ++h) {
            store_integers(r.q + h * lanes, shifted[h]);
            spread_quarters(r.q + h * lanes, transposed + h * lanes);
            sums[h] = static_cast<std::int32_t>(tree16(sub(shifted[h], magic)));  // of integers: exact
        }
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
