// Norms of one row, and the lane sum; docs/arithmetic.md, sections 2 and 6.
#include "kernels.h"
#include "simd_math.h"

namespace strata {
namespace STRATA_ISA {
namespace {

float lane_dot(const float* x, const float* y, std::size_t n) {
    return lane_sum(n, [=](std::size_t i, std::size_t some) { return mul(load_up_to(x + i, some), load_up_to(y + i, some)); });
}

float inverse_rms(const float* x, std::size_t n, float eps) {
    return 1.0f / __builtin_sqrtf(lane_dot(x, x, n) / float(n) + eps);
}

void rms_norm(const float* x, const float* gamma, float* y, std::size_t n, std::size_t group, float eps) {
    for (std::size_t start = 0; start < n; start += group) {
        const Floats inverse = all_floats(inverse_rms(x + start, group, eps));
        each_vector(group, [&](std::size_t i, std::size_t some) {
            const std::size_t at = start + i;
            store_up_to(y + at, mul(mul(load_up_to(x + at, some), inverse), load_up_to(gamma + at, some)), some);
        });
    }
}

void l2_norm(const float* x, float* y, std::size_t n, float scale) {
    const Floats inverse = all_floats(1.0f / __builtin_sqrtf(lane_dot(x, x, n) + 1e-6f)), times = all_floats(scale);
    each_vector(n, [&](std::size_t i, std::size_t some) {
        store_up_to(y + i, mul(mul(load_up_to(x + i, some), inverse), times), some);
    });
}

void gated_norm(const float* x, const float* gate, const float* gamma, float* y, std::size_t n, float eps, bool silu) {
    const Floats inverse = all_floats(inverse_rms(x, n, eps));
    each_vector(n, [&](std::size_t i, std::size_t some) {
        const Floats z = load_up_to(gate + i, some);
        const Floats normed = mul(mul(load_up_to(x + i, some), inverse), load_up_to(gamma + i, some));
        store_up_to(y + i, mul(normed, silu ? silu_of(z) : sigmoid_of(z)), some);
    });
}

}  // namespace

void fill_norms(Kernels& k) {
    k.window.lane_dot = lane_dot;
    k.window.rms_norm = rms_norm;
    k.window.l2_norm = l2_norm;
    k.window.gated_norm = gated_norm;
}

}  // namespace STRATA_ISA
}  // namespace strata
