#include "rows.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "kernels.h"
#include "ops.h"

namespace strata {

void dequantize_row(const Matrix& w, std::size_t row, float* out) {
    if (w.format == 0 || w.format == 1 || w.format == 30) {
        kernels().window.widen_row(w.raw + row * w.row_bytes, out, w.k, w.format);
        return;
    }
    const IntegerMatrix& m = *w.integers;
    const std::int16_t* values = m.values + row * m.k;
    const float* scales = m.scales + row * (m.k / m.group);
    for (std::size_t i = 0; i < m.k; ++i) {
        out[i] = float(values[i]) * scales[i / m.group];
        if (m.minimums) out[i] = out[i] - float(m.minimums[row * (m.k / 16) + i / 16]) * m.min_scales[row * (m.k / 32) + i / 32];
    }
}

void read_ahead(const Matrix& w, const std::int64_t* rows, std::size_t count) {
    static const std::uintptr_t page = std::uintptr_t(sysconf(_SC_PAGESIZE));
    std::vector<std::uintptr_t> pages;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uintptr_t first = reinterpret_cast<std::uintptr_t>(w.raw + std::size_t(rows[i]) * w.row_bytes) / page;
        const std::uintptr_t last = reinterpret_cast<std::uintptr_t>(w.raw + (std::size_t(rows[i]) + 1) * w.row_bytes - 1) / page;
        for (std::uintptr_t p = first; p <= last; ++p) pages.push_back(p);
    }
    std::sort(pages.begin(), pages.end());
    pages.erase(std::unique(pages.begin(), pages.end()), pages.end());
    for (const std::uintptr_t p : pages) madvise(reinterpret_cast<void*>(p * page), page, MADV_WILLNEED);
}

}  // namespace strata
