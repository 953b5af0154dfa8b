#include "ops.h"

namespace strata {
namespace {

// out[j] = tree over i < dk of state[i, j] * x[i]; scratch holds the leaves.
void tree_product(const float* state, const float* x, float* scratch, float* out, std::size_t dk, std::size_t dv) {
    std::size_t size = power_of_two(dk);
    for (std::size_t i = 0; i < dk; ++i)
        for (std::size_t j = 0; j < dv; ++j) scratch[i * dv + j] = state[i * dv + j] * x[i];
    for (std::size_t i = dk * dv; i < size * dv; ++i) scratch[i] = 0.0f;
    for (; size > 1; size /= 2)
        for (std::size_t i = 0; i < size / 2; ++i) {
            const float* a = scratch + 2 * i * dv;
            float* target = scratch + i * dv;
            for (std::size_t j = 0; j < dv; ++j) {
                const float left = a[j], right = a[dv + j];
                target[j] = left + right;
            }
        }
    for (std::size_t j = 0; j < dv; ++j) out[j] = scratch[j];
}

}  // namespace

void gated_delta_rule(float* state, const float* q, const float* k, const float* v, const float* decay,
                      const float* beta, float* out, float* scratch, std::size_t tokens, std::size_t heads,
                      std::size_t dk, std::size_t dv) {
    for (std::size_t h = 0; h < heads; ++h) {
        float* s = state + h * dk * dv;
        for (std::size_t t = 0; t < tokens; ++t) {
            const std::size_t row = t * heads + h;
            const float* kt = k + row * dk;
            float* o = out + row * dv;
            for (std::size_t i = 0; i < dk * dv; ++i) s[i] = s[i] * decay[row];
            tree_product(s, kt, scratch, o, dk, dv);
            for (std::size_t j = 0; j < dv; ++j) o[j] = (v[row * dv + j] - o[j]) * beta[row];
            for (std::size_t i = 0; i < dk; ++i)
                for (std::size_t j = 0; j < dv; ++j) s[i * dv + j] = s[i * dv + j] + kt[i] * o[j];
            tree_product(s, q + row * dk, scratch, o, dk, dv);
        }
    }
}

}  // namespace strata
