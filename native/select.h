// The indexer's choice and other selections: best first, ties to the lower index.
#pragma once
#include <cstddef>
#include <cstdint>

#include "spec.h"
#include "state.h"
#include "window_kernels.h"

namespace strata {

// Scores of the first `blocks` block keys for one row's index queries (heads, dim); docs/arithmetic.md, section 11.
// `key`: memory for one widened key.
void score_blocks(const WindowKernels& run, const AttentionSpec& spec, const ChunkedRows& keys, std::size_t blocks,
                  const float* queries, int format, float* key, float* scores);

// The `count` largest of n values (n > count > 0), ascending by index, in chosen[0..count). NaN counts as the smallest.
// `chosen` has room for n.
void select_largest(const float* values, std::size_t n, std::size_t count, std::uint32_t* chosen);

// The `count` largest of n values, the largest first.
void rank_largest(const float* values, std::size_t n, std::size_t count, std::uint32_t* chosen);

}  // namespace strata
