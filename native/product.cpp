#include "product.h"

#include <stdexcept>
#include <string>

#include "kernels.h"
#include "ops.h"

namespace strata {
namespace {

struct Layout {
    int format;
    const char* name;
    std::size_t elements, bytes;  // a block of the file
};

const Layout layouts[] = {
    {0, "F32", 1, 4},        {1, "F16", 1, 2},         {30, "BF16", 1, 2},      {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},     {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},     {8, "Q8_0", 32, 34},
    {42, "Q2_0", 64, 18},    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},  {12, "Q4_K", 256, 144},
    {13, "Q5_K", 256, 176},  {14, "Q6_K", 256, 210},   {19, "IQ1_S", 256, 50},  {29, "IQ1_M", 256, 56},
    {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74}, {22, "IQ2_S", 256, 82},  {18, "IQ3_XXS", 256, 98},
    {21, "IQ3_S", 256, 110}, {20, "IQ4_NL", 32, 18},   {23, "IQ4_XS", 256, 136}, {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},  {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
};

const Layout& layout(int format, std::size_t k) {
    for (const Layout& row : layouts) {
        if (row.format != format) continue;
        if (k == 0 || k % row.elements || k > max_k)
            throw std::invalid_argument(std::string(row.name) + " stores blocks of " + std::to_string(row.elements) +
                                        " elements, at most " + std::to_string(max_k) + " a row; a row of " +
                                        std::to_string(k) + " does not fit.");
        return row;
    }
    throw std::invalid_argument("Tensor type " + std::to_string(format) + " has no product.");
}

std::size_t records_a_row(std::size_t k) { return (k + block - 1) / block + 1; }

}  // namespace

Matrix matrix_at(int format, std::size_t n, std::size_t k, const std::uint8_t* raw, const std::uint8_t* tiles) {
    const Layout& row = layout(format, k);
    const std::size_t tile_bytes = repacked_bytes(format, tile_rows, k);
    return {format, n, k, tiles, raw, k / row.elements * row.bytes, tile_bytes};
}

std::size_t repacked_bytes(int format, std::size_t n, std::size_t k) {
    layout(format, k);
    const Kernels& table = kernels();
    if (!table.product[format]) return 0;
    const std::size_t blocks = k / block, group = table.group_blocks[format], rest = blocks % group;
    const std::size_t tile = blocks / group * table.group_bytes[format](group) + (rest ? table.group_bytes[format](rest) : 0);
    return (n + tile_rows - 1) / tile_rows * tile;
}

void repack(const Matrix& w, std::uint8_t* tiles, std::size_t first_tile, std::size_t last_tile) {
    const std::uint8_t* rows[tile_rows];
    for (std::size_t tile = first_tile; tile < last_tile; ++tile) {
        for (std::size_t r = 0; r < tile_rows; ++r) {
            const std::size_t n = tile * tile_rows + r;  // rows past the last one repeat it
            rows[r] = w.raw + (n < w.n ? n : w.n - 1) * w.row_bytes;
        }
        kernels().repack[w.format](rows, w.k, tiles + tile * w.tile_bytes);
    }
}

std::size_t activation_bytes(std::size_t rows, std::size_t k) {
    const std::size_t records = rows * records_a_row(k);
    return records * (sizeof(Record) + block) + 64;
}

Activations activations_at(void* memory, const float* x, std::size_t rows, std::size_t k) {
    const std::size_t stride = records_a_row(k);
    Record* records = static_cast<Record*>(memory);
    return {x, records, reinterpret_cast<std::int8_t*>(records + rows * stride), rows, k, stride - 1, stride};
}

void quantize_rows(const Activations& a, std::size_t first, std::size_t last) {
    kernels().quantize_rows(a, first, last);
}

std::size_t product_scratch_bytes(std::size_t k) { return (k / block + 8) * 1600; }

namespace {

float widened(const Matrix& w, std::size_t row, std::size_t i) {
    const std::uint8_t* at = w.raw + row * w.row_bytes;
    float x;
    if (w.format == 0) {
        __builtin_memcpy(&x, at + 4 * i, 4);
        return x;
    }
    std::uint16_t half;
    __builtin_memcpy(&half, at + 2 * i, 2);
    std::uint32_t u;
    if (w.format == 30) {
        u = std::uint32_t(half) << 16;
    } else {
        const std::uint32_t sign = std::uint32_t(half & 0x8000) << 16, exponent = half >> 10 & 31, m = half & 1023;
        if (exponent == 0) {
            x = float(m) * (1.0f / 16777216.0f);
            return sign ? -x : x;
        }
        u = sign | (exponent == 31 ? 0x7F800000 : (exponent + 112) << 23) | m << 13;
    }
    __builtin_memcpy(&x, &u, 4);
    return x;
}

float plain_tree(float* p, std::size_t count) {
    std::size_t size = power_of_two(count);
    for (std::size_t i = count; i < size; ++i) p[i] = 0.0f;
    for (; size > 1; size /= 2)
        for (std::size_t i = 0; i < size / 2; ++i) p[i] = p[2 * i] + p[2 * i + 1];
    return p[0];
}

float plain_float_product(const Matrix& w, const float* x, std::size_t row, float* partials) {
    std::size_t segments = 0;
    for (std::size_t start = 0; start < w.k; start += 128, ++segments) {
        float lanes[32] = {};
        for (std::size_t i = start; i < start + 128 && i < w.k; ++i)
            lanes[i % 32] = lanes[i % 32] + x[i] * widened(w, row, i);
        partials[segments] = plain_tree(lanes, 32);
    }
    return plain_tree(partials, segments);
}

}  // namespace

void product(const Matrix& w, const Activations& a, const std::uint32_t* row_index, std::size_t count,
             std::size_t first_tile, std::size_t last_tile, float* y, std::size_t y_stride, void* scratch) {
    if (const Kernels::Product run = kernels().product[w.format])
        return run(w, a, row_index, count, first_tile, last_tile, y, y_stride, scratch);
    const std::size_t end = last_tile * tile_rows < w.n ? last_tile * tile_rows : w.n;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t row = row_index ? row_index[i] : i;
        for (std::size_t n = first_tile * tile_rows; n < end; ++n)
            y[i * y_stride + n] = plain_float_product(w, a.x + row * a.k, n, static_cast<float*>(scratch));
    }
}

}  // namespace strata
