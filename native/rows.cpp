#include "rows.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels.h"

namespace strata {

namespace {

constexpr int mxfp4 = 39;

// MXFP4 keeps scales here that products take for 0.
void mxfp4_row(const std::uint8_t* raw, std::size_t k, float* out) {
    constexpr float doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    for (std::size_t at = 0; at < k; at += 32, raw += 17) {
        const float scale = std::ldexp(1.0f, int(raw[0]) - 128);
        for (std::size_t i = 0; i < 16; ++i) {
            out[at + i] = doubled[raw[1 + i] & 15] * scale;
            out[at + 16 + i] = doubled[raw[1 + i] >> 4] * scale;
        }
    }
}

}  // namespace

void dequantize_rows(const Matrix& w, const std::int64_t* rows, std::size_t count, float* out, std::size_t stride) {
    const Kernels& run = kernels();
    const auto raw = [&](std::size_t i) { return w.raw + std::size_t(rows[i]) * w.row_bytes; };
    if (w.format != mxfp4 && run.dequantize[w.format]) {
        for (std::size_t first = 0; first < count; first += 16) {
            const std::size_t some = std::min<std::size_t>(16, count - first);
            const std::uint8_t* from[16];
            float* to[16];
            for (std::size_t i = 0; i < 16; ++i) {
                const std::size_t at = first + std::min(i, some - 1);
                from[i] = raw(at);
                to[i] = out + at * stride;
            }
            run.dequantize[w.format](from, w.k, some, to);
        }
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        float* to = out + i * stride;
        if (is_float(w))
            run.window.widen_row(raw(i), to, w.k, w.format);
        else
            mxfp4_row(raw(i), w.k, to);
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
    for (std::size_t i = 0, next; i < pages.size(); i = next) {
        for (next = i + 1; next < pages.size() && pages[next] == pages[next - 1] + 1;) ++next;
        madvise(reinterpret_cast<void*>(pages[i] * page), (next - i) * page, MADV_WILLNEED);
    }
}

}  // namespace strata
