// Products with float weights, used where they lie: sixteen outputs at a time share the trees over their lanes.
// docs/arithmetic.md, sections 2 and 4.
#include "kernels.h"
#include "simd_math.h"

namespace strata {
namespace STRATA_ISA {

void fill_product_float(Kernels&);

namespace {

constexpr std::size_t segment = 128, half_step = 2 * lanes;
constexpr int most_rows = wide_registers ? 4 : 2;    // of x at once, times
constexpr int weight_rows = wide_registers ? 4 : 2;  // weight rows at once: their sums stay in registers
constexpr std::size_t kept_bytes = 1 << 19;          // rows of x that stay in the second cache while tiles pass by

template <int format>
STRATA_OP Floats weights_at(const std::uint8_t* row, std::size_t i) {
    if constexpr (format == 0) return floats_at(row + 4 * i);
    else if constexpr (format == 30) return bfloats_at(row + 2 * i);
    else return halves_at(row + 2 * i);
}

template <int format>
STRATA_OP Floats weights_up_to(const std::uint8_t* row, std::size_t i, std::size_t some) {
    if (some >= lanes) return weights_at<format>(row, i);
    constexpr std::size_t size = format == 0 ? 4 : 2;
    std::uint8_t bits[64] = {};
    __builtin_memcpy(bits, row + size * i, size * some);
    return weights_at<format>(bits, 0);
}

// Half of the lanes (16 of 32) of a segment's products: lane sums of `weight_rows` weights with R rows of x.
template <int format, int R>
STRATA_OP void half_lanes(const std::uint8_t* const* w, const float* const* x, std::size_t start, std::size_t end,
                          Floats sums[weight_rows][R]) {
    STRATA_UNROLL for (int n = 0; n < weight_rows; ++n)
        STRATA_UNROLL for (int r = 0; r < R; ++r) sums[n][r] = zero_floats();
    const auto step = [&](std::size_t i, auto from_x, auto from_w) {
        Floats row[R];
        STRATA_UNROLL for (int r = 0; r < R; ++r) row[r] = from_x(x[r], i);
        STRATA_UNROLL for (int n = 0; n < weight_rows; ++n) {
            const Floats weight = from_w(w[n], i);
            STRATA_UNROLL for (int r = 0; r < R; ++r) sums[n][r] = add(sums[n][r], mul(row[r], weight));
        }
    };
    std::size_t i = start;
    for (; i + lanes <= end; i += half_step)
        step(i, [](const float* p, std::size_t at) { return load_floats(p + at); },
             [](const std::uint8_t* p, std::size_t at) { return weights_at<format>(p, at); });
    if (i < end)
        step(i, [=](const float* p, std::size_t at) { return load_some(p + at, end - at); },
             [=](const std::uint8_t* p, std::size_t at) { return weights_up_to<format>(p, at, end - at); });
}

// One tile of weights times R rows of x.
template <int format, int R>
__attribute__((noinline)) void float_tile(const std::uint8_t* const w[tile_rows], const float* const x[R], std::size_t k,
                                          float* const y[R], std::size_t used) {
    Tree<R> tree;
    Floats of_lanes[R][tile_rows];
    for (auto& row : of_lanes)
        for (Floats& v : row) v = zero_floats();
    for (std::size_t start = 0; start < k; start += segment) {
        const std::size_t end = k - start < segment ? k : start + segment;
        Floats sum[R];
        for (Floats& v : sum) v = zero_floats();  // the halves' sums are never -0, so this adds nothing
        for (std::size_t half = 0; half < 2; ++half) {
            for (std::size_t n = 0; n < used; n += weight_rows) {
                Floats sums[weight_rows][R];
                half_lanes<format, R>(w + n, x, start + half * lanes, end, sums);
                STRATA_UNROLL for (int m = 0; m < weight_rows; ++m)
                    STRATA_UNROLL for (int r = 0; r < R; ++r) of_lanes[r][n + std::size_t(m)] = sums[m][r];
            }
            STRATA_UNROLL for (int r = 0; r < R; ++r) sum[r] = add(sum[r], sixteen_trees(of_lanes[r]));
        }
        tree.push(sum, 0);
    }
    Floats total[R];
    tree.finish(total);
    for (int r = 0; r < R; ++r) store_up_to(y[r], total[r], used);
}

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
