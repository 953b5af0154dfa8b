// The ops in C++: plain pointers, no containers, the names and the bits of strata.arithmetic.
#pragma once
#include <cstddef>
#include <cstdint>

namespace strata {

// A quantized matrix in integer form: values (n, k), scales (n, k/group), minimums (n, k/16) and min_scales (n, k/32)
// or null; scales below 2^-60 are already 0. group is 32 or 16.
struct IntegerMatrix {
    const std::int16_t* values;
    const float* scales;
    const std::int16_t* minimums;
    const float* min_scales;
    std::size_t n, k, group;
};

constexpr std::size_t max_k_plain = 16384;  // columns of a matrix: one widened row stays on the stack

// y (rows, n) = quantized rows q (rows, k) with scales d (rows, k/32) times the matrix; docs/arithmetic.md, section 3.
void quantized_product(const IntegerMatrix& w, const std::int8_t* q, const float* d, std::size_t rows, float* y);

struct Record;

// The same for row `row` of the matrix and one row of records (native/product.h); partials: k / 128 + 1 floats, padded to
// a power of two.
float plain_product(const IntegerMatrix& w, std::size_t row, const Record* records, float* partials);

// The gated delta rule over `tokens` rows of one conversation; state (heads, dk, dv) is updated in place.
// q, k (tokens, heads, dk), v and out (tokens, heads, dv), decay and beta (tokens, heads); docs/arithmetic.md, section 9.
// `scratch` holds width(dk) * dv floats, width = dk rounded up to a power of two.
void gated_delta_rule(float* state, const float* q, const float* k, const float* v, const float* decay,
                      const float* beta, float* out, float* scratch, std::size_t tokens, std::size_t heads,
                      std::size_t dk, std::size_t dv);

// The next power of two, at least 1.
inline std::size_t power_of_two(std::size_t n) {
    std::size_t p = 1;
    while (p < n) p *= 2;
    return p;
}

}  // namespace strata
