#include "load.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace strata {
namespace {

constexpr std::size_t run_bytes = 4 << 20;   // of the file, repacked before its pages are given back
constexpr std::size_t large_page = 2 << 20;

struct Run {
    const Repacking* of;
    std::size_t first, last;  // tiles
};

// `advice` for whole pages around the bytes.
void advise(const std::uint8_t* begin, const std::uint8_t* end, int advice) {
    static const std::uintptr_t page = std::uintptr_t(sysconf(_SC_PAGESIZE));
    const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(begin) / page * page;
    const std::uintptr_t last = (reinterpret_cast<std::uintptr_t>(end) + page - 1) / page * page;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, advice);
}

struct Bytes {
    const std::uint8_t *begin, *end;
};

Bytes bytes_of(const Run& run) {
    const Matrix& w = run.of->w;
    return {w.raw + run.first * tile_rows * w.row_bytes, w.raw + std::min(w.n, run.last * tile_rows) * w.row_bytes};
}

void read_ahead(const Run& run) {
    const Bytes of = bytes_of(run);
    if (run.of->map_begin) advise(of.begin, of.end, MADV_WILLNEED);
}

// Touching a page may map all of the large page that the system keeps it in, so neighbours go too: they are read again.
void give_back(const Run& run) {
    if (run.of->map_begin == nullptr) return;
    const Bytes of = bytes_of(run);
    const std::size_t before = std::min(large_page, std::size_t(of.begin - run.of->map_begin));
    const std::size_t after = std::min(large_page, std::size_t(run.of->map_end - of.end));
    advise(of.begin - before, of.end + after, MADV_DONTNEED);
}

std::vector<Run> runs_of(const std::vector<Repacking>& list, int thread, int threads) {
    std::vector<Run> runs;
    for (const Repacking& one : list) {
        const Part part = part_of(tiles_of(one.w), thread, threads);
        const std::size_t step = std::max<std::size_t>(1, run_bytes / (tile_rows * one.w.row_bytes));
        for (std::size_t first = part.begin; first < part.end; first += step)
            runs.push_back({&one, first, std::min(part.end, first + step)});
    }
    return runs;
}

}  // namespace

Arena::Arena(std::size_t bytes) : data_(nullptr), bytes_(bytes) {
    if (bytes == 0) return;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<std::uint8_t*>(memory);
#if defined(MADV_HUGEPAGE)
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
}

Arena::~Arena() {
    if (data_ != nullptr) munmap(data_, bytes_);
}

void repack_all(Pool& pool, const std::vector<Repacking>& list) {
    std::vector<std::vector<Run>> work;
    for (int thread = 0; thread < pool.threads(); ++thread) work.push_back(runs_of(list, thread, pool.threads()));
    pool.each([&](int thread, int) {
        const std::vector<Run>& runs = work[std::size_t(thread)];
        if (!runs.empty()) read_ahead(runs[0]);
        for (std::size_t i = 0; i < runs.size(); ++i) {
            if (i + 1 < runs.size()) read_ahead(runs[i + 1]);
            repack(runs[i].of->w, runs[i].of->tiles, runs[i].first, runs[i].last);
            give_back(runs[i]);
        }
    });
}

void expect_gathers(const Matrix& w) { advise(w.raw, w.raw + w.n * w.row_bytes, MADV_RANDOM); }

}  // namespace strata
