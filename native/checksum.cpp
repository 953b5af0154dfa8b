// Folding by carry-less products: Gopal et al., Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction (Intel, 2009). Bits are reflected: bit 0 of a byte is its highest power.
#include "checksum.h"

#include <array>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <immintrin.h>
#define STRATA_CLMUL __attribute__((target("pclmul,sse4.1")))
#endif

namespace strata {

namespace {

constexpr std::uint32_t times_x(std::uint32_t r) { return (r >> 1) ^ (r & 1 ? 0xEDB88320u : 0u); }

constexpr std::array<std::uint32_t, 256> make_table() {
    std::array<std::uint32_t, 256> table{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t r = byte;
        for (int bit = 0; bit < 8; ++bit) r = times_x(r);
        table[byte] = r;
    }
    return table;
}
constexpr std::array<std::uint32_t, 256> table = make_table();

std::uint32_t bytewise(std::uint32_t r, const std::uint8_t* p, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) r = (r >> 8) ^ table[(r ^ p[i]) & 255];
    return r;
}

#ifdef STRATA_CLMUL

// x^power modulo the polynomial, one place up: a product of reflected words is one place short.
constexpr long long fold(int power) {
    std::uint32_t r = 0x80000000u;
    for (int i = 0; i < power; ++i) r = times_x(r);
    return static_cast<long long>(std::uint64_t(r) << 1);
}

// x moved on by as many bits as `by` stands for, and `next` added there.
STRATA_CLMUL inline __m128i moved(__m128i x, __m128i by, __m128i next) {
    const __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

STRATA_CLMUL inline __m128i load(const std::uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// The register after n bytes, n a multiple of 16 and at least 64.
STRATA_CLMUL std::uint32_t folded(std::uint32_t r, const std::uint8_t* p, std::size_t n) {
    constexpr int block = 128;  // bits; the halves of a block are 64 bits apart, the register has 32
    const __m128i by4 = _mm_set_epi64x(fold(4 * block - 32), fold(4 * block + 32));
    const __m128i by1 = _mm_set_epi64x(fold(block - 32), fold(block + 32));
    __m128i a = _mm_xor_si128(load(p), _mm_cvtsi32_si128(static_cast<int>(r)));
    __m128i b = load(p + 16), c = load(p + 32), d = load(p + 48);
    const std::uint8_t* const end = p + n;
    for (p += 64; end - p >= 64; p += 64) {
        a = moved(a, by4, load(p));
        b = moved(b, by4, load(p + 16));
        c = moved(c, by4, load(p + 32));
        d = moved(d, by4, load(p + 48));
    }
    a = moved(moved(moved(a, by1, b), by1, c), by1, d);
    for (; p < end; p += 16) a = moved(a, by1, load(p));
    std::uint8_t rest[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), a);
    return bytewise(0, rest, sizeof rest);
}

#endif

}  // namespace

bool has_fast_crc32() {
#ifdef STRATA_CLMUL
    static const bool found = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    return found;
#else
    return false;
#endif
}

std::uint32_t crc32(std::uint32_t crc, const std::uint8_t* p, std::size_t n) {
    std::uint32_t r = ~crc;
#ifdef STRATA_CLMUL
    const std::size_t whole = n / 16 * 16;
    if (whole >= 64 && has_fast_crc32()) {
        r = folded(r, p, whole);
        p += whole;
        n -= whole;
    }
#endif
    return ~bytewise(r, p, n);
}

}  // namespace strata
