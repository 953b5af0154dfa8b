#include "ops.h"
#include "product.h"

namespace strata {
namespace {

constexpr std::size_t blocks_a_segment = 4;

// Pairwise sum of count partials, neighbours first, padded with +0 to a power of two. Overwrites p.
float tree(float* p, std::size_t count) {
    std::size_t size = power_of_two(count);
    for (std::size_t i = count; i < size; ++i) p[i] = 0.0f;
    for (; size > 1; size /= 2)
        for (std::size_t i = 0; i < size / 2; ++i) p[i] = p[2 * i] + p[2 * i + 1];
    return p[0];
}

template <std::size_t length>
std::int32_t dot(const std::int16_t* w, const std::int16_t* q) {
    std::int32_t sum = 0;
    for (std::size_t i = 0; i < length; ++i) sum += std::int32_t(w[i]) * q[i];
    return sum;
}

std::int32_t minimum_sum(const std::int16_t* m, const std::int16_t* q) {
    std::int32_t first = 0, second = 0;
    for (std::size_t i = 0; i < 16; ++i) first += q[i];
    for (std::size_t i = 16; i < 32; ++i) second += q[i];
    return m[0] * first + m[1] * second;
}

// One row of the matrix times one quantized row.
float row_product(const IntegerMatrix& w, std::size_t row, const std::int16_t* q, const float* d, float* partials) {
    const std::size_t blocks = w.k / block;
    const std::int16_t* values = w.values + row * w.k;
    const float* scales = w.scales + row * (w.k / w.group);
    const std::int16_t* minimums = w.minimums ? w.minimums + row * blocks * 2 : nullptr;
    const float* min_scales = w.min_scales ? w.min_scales + row * blocks : nullptr;
    std::size_t segments = 0;
    for (std::size_t first = 0; first < blocks; first += blocks_a_segment, ++segments) {
        const std::size_t last = first + blocks_a_segment < blocks ? first + blocks_a_segment : blocks;
        float p = 0.0f;
        for (std::size_t b = first; b < last; ++b) {
            const std::int16_t* wb = values + b * block;
            const std::int16_t* qb = q + b * block;
            if (w.group == 32) {
                float t = float(dot<32>(wb, qb)) * (scales[b] * d[b]);
                if (minimums) t = t - float(minimum_sum(minimums + 2 * b, qb)) * (min_scales[b] * d[b]);
                p = p + t;
            } else {
                p = p + float(dot<16>(wb, qb)) * (scales[2 * b] * d[b]);
                p = p + float(dot<16>(wb + 16, qb + 16)) * (scales[2 * b + 1] * d[b]);
            }
        }
        partials[segments] = p;
    }
    return tree(partials, segments);
}

}  // namespace

float plain_product(const IntegerMatrix& w, std::size_t row, const Record* records, float* partials) {
    const std::size_t blocks = w.k / block;
    std::int16_t wide[max_k_plain];
    float d[max_k_plain / block];
    for (std::size_t b = 0; b < blocks; ++b) {
        d[b] = records[b].scale;
        for (std::size_t i = 0; i < block; ++i) wide[b * block + i] = records[b].q[i];
    }
    return row_product(w, row, wide, d, partials);
}

void quantized_product(const IntegerMatrix& w, const std::int8_t* q, const float* d, std::size_t rows, float* y) {
    float partials[max_k_plain / (block * blocks_a_segment)];
    std::int16_t wide[max_k_plain];
    const std::size_t blocks = w.k / block;
    for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t i = 0; i < w.k; ++i) wide[i] = q[r * w.k + i];
        for (std::size_t n = 0; n < w.n; ++n) y[r * w.n + n] = row_product(w, n, wide, d + r * blocks, partials);
    }
}

}  // namespace strata
