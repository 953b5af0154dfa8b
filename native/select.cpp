#include "select.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace strata {
namespace {

// Whether value a comes before value b: larger first, NaN last. Zeros of both signs are equal.
bool before(float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); }

}  // namespace

void score_blocks(const WindowKernels& run, const AttentionSpec& spec, const ChunkedRows& keys, std::size_t blocks,
                  const float* queries, int format, float* key, float* scores) {
    for (std::size_t b = 0; b < blocks; ++b) {
        run.widen_row(keys.row(0, b), key, spec.index_dim, format);
        float score = 0.0f;
        for (std::size_t h = 0; h < spec.index_heads; ++h) {
            const float dot = run.lane_dot(queries + h * spec.index_dim, key, spec.index_dim);
            score = score + (dot > 0.0f ? dot : 0.0f);
        }
        scores[b] = score;
    }
}

void select_largest(const float* values, std::size_t n, std::size_t count, std::uint32_t* chosen) {
    std::iota(chosen, chosen + n, 0u);
    std::nth_element(chosen, chosen + count, chosen + n, [values](std::uint32_t a, std::uint32_t b) {
        return before(values[a], values[b]) || (!before(values[b], values[a]) && a < b);
    });
    std::sort(chosen, chosen + count);
}

void rank_largest(const float* values, std::size_t n, std::size_t count, std::uint32_t* chosen) {
    std::size_t held = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (held == count && !before(values[i], values[chosen[held - 1]])) continue;
        std::size_t at = held < count ? held++ : held - 1;
        for (; at > 0 && before(values[i], values[chosen[at - 1]]); --at) chosen[at] = chosen[at - 1];
        chosen[at] = std::uint32_t(i);
    }
}

}  // namespace strata
