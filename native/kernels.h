// The table of kernels: one function pointer an op, filled once an instruction set (native/kernels/all.cpp).
//
// Rules for native/kernels/*.cpp: everything lives in `namespace strata::STRATA_ISA`, and there in an unnamed namespace,
// except `fill_...(Kernels&)`. No std templates and no inline functions of shared headers: a weak symbol compiled with
// AVX-512 could be the one that the linker keeps for all.
#pragma once
#include <cstddef>
#include <cstdint>

#include "product.h"
#include "window_kernels.h"

namespace strata {

constexpr int max_formats = 64;  // ggml type numbers

struct Kernels {
    // Rows first..last of a.x into a.records and a.transposed.
    void (*quantize_rows)(const Activations& a, std::size_t first, std::size_t last);

    // Tiles of one format; null where it has none. `scratch`: product_scratch_bytes(k).
    using Product = void (*)(const Matrix& w, const Activations& a, const std::uint32_t* row_index, std::size_t count,
                             std::size_t first_tile, std::size_t last_tile, float* y, std::size_t y_stride,
                             void* scratch);
    Product product[max_formats];

    // Sixteen rows of the file (pointers, may repeat) to one tile.
    using Repack = void (*)(const std::uint8_t* const rows[16], std::size_t k, std::uint8_t* tile);
    Repack repack[max_formats];

    // The first `count` of sixteen rows of the file (pointers, may repeat) as floats, k each.
    using Dequantize = void (*)(const std::uint8_t* const rows[16], std::size_t k, std::size_t count, float* const out[16]);
    Dequantize dequantize[max_formats];

    // Bounds of the machine, for benchmarks: read `bytes` once; steps * 12 dots of 64 products in registers.
    int (*read_memory)(const std::uint8_t* p, std::size_t bytes);
    int (*dot_registers)(std::size_t steps);

    // Blocks of 32 in a group of a format's tile, and the bytes of a group of nb blocks.
    std::size_t group_blocks[max_formats];
    std::size_t (*group_bytes[max_formats])(std::size_t nb);

    WindowKernels window;
};

// The kernels in use: the best that the machine has, or what select_isa chose.
const Kernels& kernels();

}  // namespace strata
