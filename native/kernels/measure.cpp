// Loops that bound the products on a machine: reading memory, and dots in registers. For benchmarks.
#include "product_tile.h"

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

}  // namespace

void fill_measure(Kernels& k) {
    k.read_memory = read_memory;
    k.dot_registers = dot_registers;
}

}  // namespace STRATA_ISA
}  // namespace strata
