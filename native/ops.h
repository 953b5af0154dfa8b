// The ops in C++: plain pointers, no containers, the names and the bits of strata.arithmetic.
#pragma once
#include <cstddef>

namespace strata {

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
