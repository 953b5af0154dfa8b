// The tile registers of AMX int8 under names of our own. Each thread sets its shapes before it uses them and releases them
// afterwards, so that nothing is left for a context switch, a signal frame or a fork to save.
//
// Built with STRATA_EMULATE_AMX the same operations are plain loops that stop the program where a processor would raise
// an exception: the kernels can be checked on a machine without AMX.
#pragma once
#include "simd.h"

#if defined(STRATA_EMULATE_AMX)
#include <cstdlib>
#endif

namespace strata {
namespace STRATA_ISA {
namespace {

constexpr int amx_rows = 16;  // of a tile of activations and of sums

// Tiles 0 and 2: rows of activations, a block and half a block. 1 and 3: weights, a row for each word of a block and of half
// a block. 4 to 7: sums, 16 rows of 16 int32.
enum AmxTile : int { a_block = 0, b_block = 1, a_half = 2, b_half = 3, sums_first = 4 };

struct alignas(64) AmxShapes {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {32, 64, 16, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {16, 8, 16, 4, 16, 16, 16, 16};
};
static_assert(sizeof(AmxShapes) == 64, "the layout of LDTILECFG");

#if defined(STRATA_EMULATE_AMX)
struct EmulatedTiles {
    AmxShapes shapes;
    bool ready;
    std::uint8_t bytes[8][16][64];
};
thread_local EmulatedTiles emulated;

STRATA_OP void need_tile(bool fits) {
    if (!fits || !emulated.ready) std::abort();
}
STRATA_OP void amx_configure(const AmxShapes& shapes) {
    emulated = EmulatedTiles{};
    emulated.shapes = shapes;
    emulated.ready = true;
}
STRATA_OP void amx_release() { emulated.ready = false; }
template <int tile>
STRATA_OP void amx_load(const void* from, std::size_t stride) {
    need_tile(tile < 8);
    __builtin_memset(emulated.bytes[tile], 0, sizeof emulated.bytes[tile]);
    for (int r = 0; r < emulated.shapes.rows[tile]; ++r)
        __builtin_memcpy(emulated.bytes[tile][r], static_cast<const std::uint8_t*>(from) + r * stride,
                         emulated.shapes.row_bytes[tile]);
}
template <int tile>
STRATA_OP void amx_store(void* to, std::size_t stride) {
    need_tile(tile < 8);
    for (int r = 0; r < emulated.shapes.rows[tile]; ++r)
        __builtin_memcpy(static_cast<std::uint8_t*>(to) + r * stride, emulated.bytes[tile][r],
                         emulated.shapes.row_bytes[tile]);
}
template <int tile>
STRATA_OP void amx_zero() {
    need_tile(tile < 8);
    __builtin_memset(emulated.bytes[tile], 0, sizeof emulated.bytes[tile]);
}
template <int sums, int a, int b>
STRATA_OP void amx_dot() {
    const AmxShapes& s = emulated.shapes;
    need_tile(s.rows[sums] == s.rows[a] && s.row_bytes[sums] == s.row_bytes[b] && s.row_bytes[a] == 4 * s.rows[b]);
    for (int m = 0; m < s.rows[a]; ++m)
        for (int n = 0; n < s.row_bytes[sums] / 4; ++n) {
            std::int32_t sum;
            __builtin_memcpy(&sum, emulated.bytes[sums][m] + 4 * n, 4);
            for (int k = 0; k < s.rows[b]; ++k)
                for (int j = 0; j < 4; ++j)
                    sum += static_cast<std::int8_t>(emulated.bytes[a][m][4 * k + j]) *
                           static_cast<std::int8_t>(emulated.bytes[b][k][4 * n + j]);
            __builtin_memcpy(emulated.bytes[sums][m] + 4 * n, &sum, 4);
        }
}
#else
// The compilers' own macros do not say that loads read memory.
STRATA_OP void amx_configure(const AmxShapes& shapes) { __asm__ volatile("ldtilecfg %0" ::"m"(shapes)); }
STRATA_OP void amx_release() { __asm__ volatile("tilerelease"); }
template <int tile>
STRATA_OP void amx_load(const void* from, std::size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
STRATA_OP void amx_store(void* to, std::size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
STRATA_OP void amx_zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(tile));
}
// sums += a times b, all bytes signed; of b, row k holds words k of 16 columns.
template <int sums, int a, int b>
STRATA_OP void amx_dot() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
}
#endif

// The shapes of this thread's tiles while it lives.
struct AmxScope {
    STRATA_MEMBER explicit AmxScope(const AmxShapes& shapes = AmxShapes()) { amx_configure(shapes); }
    STRATA_MEMBER ~AmxScope() { amx_release(); }
};

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
