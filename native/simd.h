// Sixteen lanes of every instruction set under one set of names, for native/kernels/*.cpp only.
//
//   Bytes   64 unsigned bytes: sixteen lanes of four
//   Ints    16 int32
//   Floats  16 fp32; multiply and add round apart everywhere
//
// Each header defines the same functions; a kernel written with them is one source for all instruction sets.
#pragma once
#include <cstddef>
#include <cstdint>

#include "codebooks.h"

#if defined(STRATA_ISA_AVX2) || defined(STRATA_ISA_AVX512VNNI) || defined(STRATA_ISA_AMX)
#include <immintrin.h>
#endif

// In plain loops, and in instrumented code, a forced inline of everything makes functions that take minutes to compile.
#if defined(STRATA_ISA_PORTABLE) || defined(STRATA_SANITIZE)
#define STRATA_OP static inline
#define STRATA_MEMBER inline
#else
#define STRATA_OP static inline __attribute__((always_inline))
#define STRATA_MEMBER inline __attribute__((always_inline))
#endif

// Loops over vectors of a block and over rows: unrolled where a vector is a register, so that their arrays are registers.
#if defined(STRATA_ISA_AVX2) || defined(STRATA_ISA_AVX512VNNI) || defined(STRATA_ISA_AMX)
#define STRATA_UNROLL _Pragma("GCC unroll 16")
#else
#define STRATA_UNROLL
#endif

namespace strata {
namespace STRATA_ISA {
namespace {

#if defined(STRATA_ISA_AMX)
constexpr bool amx_dots = true;  // many rows: dots in tile registers
#else
constexpr bool amx_dots = false;
#endif

STRATA_OP std::int32_t word_at(const void* p) {
    std::int32_t x;
    __builtin_memcpy(&x, p, 4);
    return x;
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata

#if defined(STRATA_ISA_AVX512VNNI) || defined(STRATA_ISA_AMX)
#include "simd_avx512.h"
#elif defined(STRATA_ISA_AVX2)
#include "simd_avx2.h"
#else
#include "simd_portable.h"
#endif
