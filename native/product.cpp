#include "product.h"

#include <stdexcept>
#include <string>

#include "kernels.h"

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

Matrix matrix_at(int format, std::size_t n, std::size_t k, const std::uint8_t* raw) {
    const Layout& row = layout(format, k);
    const std::size_t tile_bytes = repacked_bytes(format, tile_rows, k);
    return {format, n, k, nullptr, raw, k / row.elements * row.bytes, tile_bytes};
}

std::size_t repacked_bytes(int format, std::size_t n, std::size_t k) {
    layout(format, k);
    const Kernels& table = kernels();
    if (!table.repack[format]) return 0;
    const std::size_t blocks = k / block, group = table.group_blocks[format], rest = blocks % group;
    const std::size_t tile = blocks / group * table.group_bytes[format](group) + (rest ? table.group_bytes[format](rest) : 0);
    return (n + tile_rows - 1) / tile_rows * tile;
}

void repack(const Matrix& w, std::uint8_t* tiles, std::size_t first_tile, std::size_t last_tile) {
    const std::uint8_t* rows[tile_rows];
    for (std::size_t tile = first_tile; tile < last_tile; ++tile) {
        rows_of_tile(w, tile, rows);
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

// Two packed tiles (at most 544 bytes a block each), two unpacked chunks, a panel of rows with sixteen places to spare, and
// for these the nodes of a tree over chunks of 16 blocks. What is enough for k is enough for less.
std::size_t product_scratch_bytes(std::size_t k) {
    const std::size_t blocks = k / block + 8, least = least_panel * blocks * sizeof(Record);
    const std::size_t panel = (kept_bytes > least ? kept_bytes : least) + 16 * blocks * sizeof(Record);
    std::size_t levels = 1;
    while (std::size_t(16) << levels < blocks) ++levels;
    return 2 * 576 * blocks + 32 * widest + panel + (levels + 1) * most_panel * 2 * 64;
}

void product(const Matrix& w, const Activations& a, const std::uint32_t* row_index, std::size_t count,
             std::size_t first_tile, std::size_t last_tile, float* y, std::size_t y_stride, void* scratch) {
    kernels().product[w.format](w, a, row_index, count, first_tile, last_tile, y, y_stride, scratch);
}

}  // namespace strata
