// Loops that bound the products on a machine: reading memory, and dots in registers. For benchmarks.
#include "product_tile.h"
#if defined(STRATA_ISA_AMX)
#include "amx_tiles.h"
#endif

namespace strata {
namespace STRATA_ISA {

void fill_measure(Kernels&);

namespace {

// Read bytes (a multiple of 512) once; the result keeps the loads alive.
int read_memory(const std::uint8_t* p, std::size_t bytes) {
    Bytes sum[4] = {all_bytes(0), all_bytes(0), all_bytes(0), all_bytes(0)};
    for (std::size_t at = 0; at + 512 <= bytes; at += 512) {
        __builtin_prefetch(p + at + 4096);
        __builtin_prefetch(p + at + 4160);
        __builtin_prefetch(p + at + 4224);
        __builtin_prefetch(p + at + 4288);
        __builtin_prefetch(p + at + 4352);
        __builtin_prefetch(p + at + 4416);
        __builtin_prefetch(p + at + 4480);
        __builtin_prefetch(p + at + 4544);
        for (int i = 0; i < 8; ++i) sum[i % 4] = xor_bytes(sum[i % 4], load_bytes(p + at + 64 * i));
    }
    std::uint8_t out[64];
    store_bytes(out, xor_bytes(xor_bytes(sum[0], sum[1]), xor_bytes(sum[2], sum[3])));
    return out[0];
}

// steps * 12 dots of 64 products in registers.
#if defined(STRATA_ISA_AMX)
int dot_registers(std::size_t steps) {
    alignas(64) std::int8_t zeros[16][64] = {};
    AmxShapes full;  // 16 rows of 64 bytes times 16 words of 16 columns: 256 dots of 64
    full.row_bytes[a_block] = 64;
    full.rows[b_block] = 16;
    const AmxScope tiles(full);
    amx_load<a_block>(zeros, 64);
    amx_load<b_block>(zeros, 64);
    for (std::size_t done = 0; done < steps * 12; done += 4 * 256) {
        amx_dot<4, a_block, b_block>();
        amx_dot<5, a_block, b_block>();
        amx_dot<6, a_block, b_block>();
        amx_dot<7, a_block, b_block>();
    }
    amx_store<4>(zeros, 64);
    return zeros[0][0];
}
#else
int dot_registers(std::size_t steps) {
    Ints acc[12];
    for (Ints& a : acc) a = zero_ints();
    const Bytes w = all_bytes(3);
    for (std::size_t i = 0; i < steps; ++i)
        for (Ints& a : acc) a = dot(a, w, 0x01020304);
    Floats sum = zero_floats();
    for (const Ints& a : acc) sum = add(sum, to_floats(a));
    float out[16];
    store_floats(out, sum);
    return static_cast<int>(out[0]);
}
#endif

}  // namespace

void fill_measure(Kernels& k) {
    k.read_memory = read_memory;
    k.dot_registers = dot_registers;
}

}  // namespace STRATA_ISA
}  // namespace strata
