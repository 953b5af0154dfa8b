// Drawing a token from logits; docs/arithmetic.md, section 15.
#pragma once
#include <cstddef>
#include <cstdint>

namespace strata {

// The first word of Philox4x64-10.
std::uint64_t philox(std::uint64_t key0, std::uint64_t key1, const std::uint64_t counter[4]);

struct Sampling {
    float temperature;   // <= 0: greedy
    double top_p;
    std::size_t top_k;   // 0: all
    std::uint64_t min_weight;  // of 2^30; 0: all
    std::uint64_t seed, choice, position;
};

// The index of the largest value, the lowest among equals; a NaN counts as the largest.
std::size_t argmax(const float* logits, std::size_t n);

bool has_nan(const float* logits, std::size_t n);

// The token of one row of n logits, none of them NaN.
std::size_t draw(const float* logits, std::size_t n, const Sampling& sampling);

}  // namespace strata
