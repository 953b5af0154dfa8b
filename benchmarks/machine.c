// What one thread of this machine can do: bytes read from memory, and int8 multiply-adds in registers.
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Seconds to read `bytes` at `data` as `streams` parts side by side; bytes is a multiple of 512 * streams.
double read_all(const char* data, size_t bytes, int streams) {
    const double start = now();
    const size_t part = bytes / (size_t)streams;
    uint64_t sum[64] = {0};
    for (size_t at = 0; at < part; at += 512)
        for (int k = 0; k < streams; k++) {
            const char* from = data + (size_t)k * part + at;
            for (int line = 0; line < 8; line++) __builtin_prefetch(from + 512 + 64 * line);
            const uint64_t* words = (const uint64_t*)from;
            for (int i = 0; i < 64; i++) sum[i] ^= words[i];
        }
    volatile uint64_t sink = 0;
    for (int i = 0; i < 64; i++) sink ^= sum[i];
    return now() - start;
}

// Multiply-adds a second of the widest int8 dot instruction compiled for, on registers alone.
double int8_macs(long rounds) {
#if defined(__AVX512VNNI__)
    enum { chains = 12, lanes = 64 };
    __m512i sum[chains];
    for (int i = 0; i < chains; i++) sum[i] = _mm512_set1_epi32(i);
    __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
    const double start = now();
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < chains; i++) sum[i] = _mm512_dpbusd_epi32(sum[i], a, b);
        __asm__ volatile("" : "+v"(a), "+v"(b));
    }
    const double spent = now() - start;
    for (int i = 1; i < chains; i++) sum[0] = _mm512_add_epi32(sum[0], sum[i]);
    volatile int sink = _mm512_reduce_add_epi32(sum[0]);
    (void)sink;
    return (double)rounds * chains * lanes / spent;
#elif defined(__AVX2__)
    enum { chains = 6, lanes = 32 };
    __m256i sum[chains];
    for (int i = 0; i < chains; i++) sum[i] = _mm256_set1_epi32(i);
    __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(1);
    const __m256i ones = _mm256_set1_epi16(1);
    const double start = now();
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < chains; i++)
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
        __asm__ volatile("" : "+x"(a), "+x"(b));
    }
    const double spent = now() - start;
    for (int i = 1; i < chains; i++) sum[0] = _mm256_add_epi32(sum[0], sum[i]);
    volatile int sink = _mm256_extract_epi32(sum[0], 0);
    (void)sink;
    return (double)rounds * chains * lanes / spent;
#else
    int sum[16] = {0};
    volatile signed char left = 3, right = 1;
    const double start = now();
    for (long r = 0; r < rounds; r++)
        for (int i = 0; i < 16; i++) sum[i] += left * right;
    volatile int sink = sum[0];
    (void)sink;
    return (double)rounds * 16 / (now() - start);
#endif
}
