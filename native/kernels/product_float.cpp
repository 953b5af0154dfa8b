// Products with float weights, used where they lie: sixteen outputs at a time share the trees over their lanes.
// docs/arithmetic.md, sections 2 and 4.
#include "float_tile.h"

namespace strata {
namespace STRATA_ISA {

void fill_product_float(Kernels&);

namespace {

constexpr std::size_t kept_bytes = 1 << 19;  // rows of x that stay in the second cache while tiles pass by

struct FloatJob {
    const Activations* a;
    const std::uint32_t* row_index;
    float* y;
    std::size_t y_stride;
};

template <int format, int R>
STRATA_OP void rows_of_x(const FloatJob& job, const std::uint8_t* const w[tile_rows], std::size_t& first, std::size_t last,
                         std::size_t n, std::size_t used) {
    for (; last - first >= R; first += R) {
        const float* x[R];
        float* y[R];
        for (std::size_t r = 0; r < R; ++r) {
            const std::size_t row = job.row_index ? job.row_index[first + r] : first + r;
            x[r] = job.a->x + row * job.a->k;
            y[r] = job.y + (first + r) * job.y_stride + n;
        }
        float_tile<format, R>(w, x, job.a->k, y, used);
    }
}

template <int format>
void float_product(const Matrix& w, const Activations& a, const std::uint32_t* row_index, std::size_t count,
                   std::size_t first_tile, std::size_t last_tile, float* y, std::size_t y_stride, void*) {
    const FloatJob job{&a, row_index, y, y_stride};
    std::size_t step = kept_bytes / (4 * a.k);
    if (step < 16) step = 16;
    for (std::size_t begin = 0; begin < count; begin += step) {
        const std::size_t end = count - begin < step ? count : begin + step;
        for (std::size_t tile = first_tile; tile < last_tile; ++tile) {
            const std::size_t n = tile * tile_rows, used = w.n - n < tile_rows ? w.n - n : tile_rows;
            const std::uint8_t* rows[tile_rows];
            for (std::size_t r = 0; r < tile_rows; ++r) rows[r] = w.raw + (n + (r < used ? r : used - 1)) * w.row_bytes;
            std::size_t first = begin;
            rows_of_x<format, most_rows>(job, rows, first, end, n, used);
            rows_of_x<format, 1>(job, rows, first, end, n, used);
        }
    }
}

}  // namespace

void fill_product_float(Kernels& k) {
    k.product[0] = float_product<0>;
    k.product[1] = float_product<1>;
    k.product[30] = float_product<30>;
}

}  // namespace STRATA_ISA
}  // namespace strata
