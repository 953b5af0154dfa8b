#include "load.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <new>

namespace strata {
namespace {

constexpr std::size_t run_bytes = 2 << 20;  // of the file, repacked before its pages are given back

struct Run {
    const Repacking* of;
    std::size_t first, last;  // tiles
};

// `advice` for whole pages around the bytes. A page at an edge may belong to a neighbour too: it is read again.
void advise(const std::uint8_t* begin, const std::uint8_t* end, int advice) {
    static const std::uintptr_t page = std::uintptr_t(sysconf(_SC_PAGESIZE));
    const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(begin) / page * page;
    const std::uintptr_t last = (reinterpret_cast<std::uintptr_t>(end) + page - 1) / page * page;
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, advice);
}

void advise(const Run& run, int advice) {
    const Matrix& w = run.of->w;
    const std::uint8_t* begin = w.raw + run.first * tile_rows * w.row_bytes;
    if (run.of->mapped) advise(begin, w.raw + std::min(w.n, run.last * tile_rows) * w.row_bytes, advice);
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
        if (!runs.empty()) advise(runs[0], MADV_WILLNEED);
        for (std::size_t i = 0; i < runs.size(); ++i) {
            if (i + 1 < runs.size()) advise(runs[i + 1], MADV_WILLNEED);
            repack(runs[i].of->w, runs[i].of->tiles, runs[i].first, runs[i].last);
            advise(runs[i], MADV_DONTNEED);
        }
    });
}

void expect_gathers(const Matrix& w) { advise(w.raw, w.raw + w.n * w.row_bytes, MADV_RANDOM); }

}  // namespace strata
