#include "dispatch.h"

#include <stdexcept>

#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif
#if defined(STRATA_HAS_AMX) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace strata {

#define STRATA_DECLARE(isa) \
    namespace isa {         \
    void fill(Kernels&);    \
    }
STRATA_DECLARE(portable)
#if defined(STRATA_HAS_AVX2)
STRATA_DECLARE(avx2)
STRATA_DECLARE(avx512vnni)
#endif
#if defined(STRATA_HAS_AMX)
STRATA_DECLARE(amx)
#endif

namespace {

struct Isa {
    const char* name;
    void (*fill)(Kernels&);
    bool (*runs)();
};

bool always() { return true; }

#if defined(STRATA_HAS_AVX2)
struct Leaf {
    unsigned a = 0, b = 0, c = 0, d = 0;
};

Leaf leaf(unsigned number, unsigned sub = 0) {
    Leaf r;
    if (!__get_cpuid_count(number, sub, &r.a, &r.b, &r.c, &r.d)) return Leaf{};
    return r;
}

bool has(unsigned word, std::initializer_list<int> bits) {
    for (int bit : bits)
        if (!(word >> bit & 1)) return false;
    return true;
}

// Register states that the operating system saves (XCR0): 1 SSE, 2 AVX, 5..7 AVX-512.
bool saved(std::initializer_list<int> bits) {
    if (!has(leaf(1).c, {27})) return false;  // OSXSAVE
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return has(low, bits);
}

bool runs_avx2() {
    return saved({1, 2}) && has(leaf(1).c, {28, 29}) && has(leaf(7).b, {3, 5, 8});  // AVX, F16C; BMI1, AVX2, BMI2
}

bool runs_avx512vnni() {
    // F, DQ, BW, VL; VBMI, VNNI
    return runs_avx2() && saved({5, 6, 7}) && has(leaf(7).b, {16, 17, 30, 31}) && has(leaf(7).c, {1, 11});
}
#endif

#if defined(STRATA_HAS_AMX)
// Linux gives the state of tile registers to a process that asks for it, once for all of its threads and children; it
// refuses where a thread's alternate signal stack is too small to save them.
bool may_use_tiles() {
#if defined(__linux__)
    constexpr long request = 0x1023, tile_data = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
    return syscall(SYS_arch_prctl, request, tile_data) == 0;
#else
    return false;
#endif
}

bool runs_amx() {
#if defined(STRATA_EMULATE_AMX)
    (void)may_use_tiles;
    return runs_avx512vnni();
#else
    // AMX-TILE, AMX-INT8; XCR0: tile configuration and data
    return runs_avx512vnni() && saved({17, 18}) && has(leaf(7).d, {24, 25}) && may_use_tiles();
#endif
}
#endif

const Isa isas[] = {
    {"portable", portable::fill, always},
#if defined(STRATA_HAS_AMX) && defined(STRATA_EMULATE_AMX)  // for checks: never the best
    {"amx", amx::fill, runs_amx},
#endif
#if defined(STRATA_HAS_AVX2)
    {"avx2", avx2::fill, runs_avx2},
    {"avx512vnni", avx512vnni::fill, runs_avx512vnni},
#endif
#if defined(STRATA_HAS_AMX) && !defined(STRATA_EMULATE_AMX)
    {"amx", amx::fill, runs_amx},
#endif
};

struct Selection {
    Kernels table{};
    const Isa* isa = nullptr;

    void use(const Isa& chosen) {
        table = Kernels{};
        chosen.fill(table);
        isa = &chosen;
    }

    Selection() {
        for (const Isa& candidate : isas)
            if (candidate.runs()) isa = &candidate;
        use(*isa);
    }
};

Selection& selection() {
    static Selection one;
    return one;
}

}  // namespace

const Kernels& kernels() { return selection().table; }

std::vector<std::string> available_isas() {
    std::vector<std::string> names;
    for (const Isa& isa : isas)
        if (isa.runs()) names.emplace_back(isa.name);
    return names;
}

void select_isa(const std::string& name) {
    const std::vector<std::string> names = available_isas();
    const std::string& wanted = name == "auto" ? names.back() : name;
    for (const Isa& isa : isas)
        if (wanted == isa.name && isa.runs()) return selection().use(isa);
    std::string list;
    for (const std::string& known : names) list += ", " + known;
    throw std::invalid_argument("The instruction set \"" + name + "\" cannot be used here; this machine and build have auto" +
                                list + ".");
}

std::string selected_isa() { return selection().isa->name; }

void clear_flush_modes() {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() & ~0x8040u);
#endif
}

}  // namespace strata
