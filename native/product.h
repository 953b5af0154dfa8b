// Products of rows with weight matrices, docs/arithmetic.md, sections 3 and 4. This is the interface for every op that
// multiplies; it never allocates, and any number of threads may work on one product.
//
// Life of a product:
//   Activations a = activations_at(memory, x, rows, k);      memory: activation_bytes(rows, k), 64-byte aligned
//   quantize_rows(a, first, last);                           by any thread, each row once (not needed for float weights)
//   product(w, a, index, count, first_tile, last_tile, y, y_stride, scratch);
//
// Work is split by tiles of 16 weight rows: the split changes no bit. A call writes the columns of its tiles, for its
// `count` rows, and nothing else. `scratch`: product_scratch_bytes(k) of the calling thread, 64-byte aligned, no
// contents expected or kept. Rows of x must be contiguous; x must live until the last product is done.
#pragma once
#include <cstddef>
#include <cstdint>

namespace strata {

constexpr std::size_t block = 32;       // elements that share an activation scale
constexpr std::size_t tile_rows = 16;   // weight rows of a tile
constexpr std::size_t max_k = 1 << 20;  // columns of a matrix

// One block of one quantized row: 64 bytes. q in ascending k; sums are those of q over the first and the second 16.
struct alignas(64) Record {
    std::int8_t q[block];
    float scale;
    std::int32_t minus_sum[3];  // -128 times the first half, the second, both
    float sum[3];               // the same sums, positive, as floats
    std::int16_t sums[2];       // of the first and the second half
};

// Rows of a window. All pointers are the caller's.
struct Activations {
    const float* x;           // (rows, k)
    Record* records;          // row r at records + r * stride
    std::int8_t* transposed;  // q again, 32 bytes a block, with other orders inside (see native/kernels/quantize.cpp)
    std::size_t rows, k, blocks;
    std::size_t stride;  // records a row: one more than needed, so that rows do not fall on one cache set
};

// A weight matrix W (n, k). `format` is the ggml type number. Quantized: `tiles` (repacked; may be null) or `raw`, the
// bytes of the file, used where they lie. Float formats (F32, F16, BF16): `raw`.
struct Matrix {
    int format;
    std::size_t n, k;
    const std::uint8_t* tiles;
    const std::uint8_t* raw;
    std::size_t row_bytes;   // bytes of a row in `raw`
    std::size_t tile_bytes;  // bytes of a tile in `tiles`
};

// A description of the matrix; throws std::invalid_argument with one sentence for an unknown format or a k that does
// not fit it. Nothing is read.
Matrix matrix_at(int format, std::size_t n, std::size_t k, const std::uint8_t* raw);

static inline std::size_t tiles_of(const Matrix& w) { return (w.n + tile_rows - 1) / tile_rows; }

// Where the rows of a tile lie in the file; those past the last one repeat it.
static inline void rows_of_tile(const Matrix& w, std::size_t tile, const std::uint8_t* rows[tile_rows]) {
    for (std::size_t r = 0; r < tile_rows; ++r) {
        const std::size_t n = tile * tile_rows + r;
        rows[r] = w.raw + (n < w.n ? n : w.n - 1) * w.row_bytes;
    }
}

// Bytes of the whole repacked matrix; 0 for float formats.
std::size_t repacked_bytes(int format, std::size_t n, std::size_t k);

// Tiles first..last of w.raw into `tiles` (the whole matrix's memory, repacked_bytes).
void repack(const Matrix& w, std::uint8_t* tiles, std::size_t first_tile, std::size_t last_tile);

std::size_t activation_bytes(std::size_t rows, std::size_t k);
Activations activations_at(void* memory, const float* x, std::size_t rows, std::size_t k);
void quantize_rows(const Activations& a, std::size_t first, std::size_t last);

std::size_t product_scratch_bytes(std::size_t k);

// Limits of that scratch, for all instruction sets (native/product_rows.h). Rows of a panel of `blocks` blocks: as many as
// stay in the second cache while tiles pass by.
constexpr std::size_t widest = 1024;  // bytes of an unpacked block and its scales, at most
constexpr std::size_t kept_bytes = 1 << 19, least_panel = 32, most_panel = 256;
static inline std::size_t panel_rows(std::size_t blocks) {
    const std::size_t fit = kept_bytes / (blocks * sizeof(Record));
    return fit < least_panel ? least_panel : fit < most_panel ? fit : most_panel;
}

// y[i * y_stride + n] = row row_index[i] (or i, where it is null) of `a` times row n of w, for i < count and n in the
// tiles first_tile..last_tile (exclusive) that exist.
void product(const Matrix& w, const Activations& a, const std::uint32_t* row_index, std::size_t count,
             std::size_t first_tile, std::size_t last_tile, float* y, std::size_t y_stride, void* scratch);

}  // namespace strata
