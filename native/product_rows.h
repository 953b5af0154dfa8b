// The product of any number of rows with a run of tiles, for one format: few rows unpack each block as they use it; many
// rows share an unpacked tile in scratch memory.
#pragma once
#include "dequantize_tile.h"
#include "many_rows.h"

namespace strata {
namespace STRATA_ISA {
namespace {

struct Job {
    const Activations* a;
    const std::uint32_t* row_index;
    float* y;
    std::size_t y_stride;
};

template <class F, int rows>
STRATA_OP void some_rows(const Job& job, const std::uint8_t* tile, std::size_t first, std::size_t n, std::size_t lanes) {
    const Activations& a = *job.a;
    Pointers<rows> x;
    STRATA_UNROLL for (int r = 0; r < rows; ++r) {
        const std::size_t row = job.row_index ? job.row_index[first + r] : first + r;
        x.record[r] = a.records + row * a.stride;
        x.transposed[r] = a.transposed + row * a.stride * block;
    }
    tile_product<F, rows>(tile, a.blocks, x, {job.y + first * job.y_stride + n, job.y_stride, lanes});
}

// As many rows at once as registers hold; then smaller steps.
template <class F, int most>
STRATA_OP void rows_by(const Job& job, const std::uint8_t* tile, std::size_t& first, std::size_t last, std::size_t n,
                       std::size_t lanes) {
    for (; last - first >= most; first += most) some_rows<F, most>(job, tile, first, n, lanes);
}

template <class F>
void few_rows(const Job& job, const std::uint8_t* tile, std::size_t first, std::size_t last, std::size_t n,
              std::size_t lanes) {
    if constexpr (wide_registers) {
        rows_by<F, 8>(job, tile, first, last, n, lanes);
        rows_by<F, 6>(job, tile, first, last, n, lanes);
    }
    rows_by<F, 4>(job, tile, first, last, n, lanes);
    if constexpr (wide_registers) {
        rows_by<F, 3>(job, tile, first, last, n, lanes);
        rows_by<F, 2>(job, tile, first, last, n, lanes);
    }
    rows_by<F, 1>(job, tile, first, last, n, lanes);
}

template <class F>
void pack_tile(const std::uint8_t* const rows[16], std::size_t k, std::uint8_t* tile) {
    std::size_t at = 0;
    for (std::size_t left = k / block; left > 0;) {
        const std::size_t nb = left < F::blocks ? left : F::blocks;
        F::pack(rows, at, nb, tile);
        at += F::file_bytes(nb);
        tile += F::group_bytes(nb);
        left -= nb;
    }
}

// The tile's bytes: where they lie repacked, or packed now into scratch.
template <class F>
const std::uint8_t* tile_at(const Matrix& w, std::size_t tile, std::uint8_t* scratch) {
    if (w.tiles) return w.tiles + tile * w.tile_bytes;
    const std::uint8_t* rows[tile_rows];
    rows_of_tile(w, tile, rows);
    pack_tile<F>(rows, w.k, scratch);
    return scratch;
}

// Rows from which tiles are unpacked first: what few_rows computes with every eight rows must cost more than stores.
template <class F>
constexpr std::size_t many_from = amx_dots ? 9 : !wide_registers ? 10 : F::transposed ? 12 : 17;

// Scratch of a product of many rows, after the packed tiles.
struct ManyScratch {
    std::uint8_t* wide;
    float* kept;
    Record* panel;
};

template <class F, int tiles>
void product_of_tiles(const Matrix& w, const Job& job, std::size_t first, std::size_t rows, std::size_t tile,
                      std::size_t last_tile, std::uint8_t* packed, const ManyScratch& s) {
    const std::uint8_t *at[tiles], *next[tiles];
    Target out{job.y + first * job.y_stride + tile * tile_rows, job.y_stride, {}};
    for (int t = 0; t < tiles; ++t) {
        const std::size_t n = (tile + t) * tile_rows;
        out.lanes[t] = w.n - n < tile_rows ? w.n - n : tile_rows;
        at[t] = tile_at<F>(w, tile + t, packed + t * w.tile_bytes);
        next[t] = w.tiles && tile + t + tiles < last_tile ? at[t] + tiles * w.tile_bytes : at[t];
    }
    many_rows<F, tiles>(at, next, job.a->blocks, s.panel, rows, s.wide, s.kept, out);
}

template <class F>
void product_tiles(const Matrix& w, const Activations& a, const std::uint32_t* row_index, std::size_t count,
                   std::size_t first_tile, std::size_t last_tile, float* y, std::size_t y_stride, void* scratch) {
    const Job job{&a, row_index, y, y_stride};
    std::uint8_t* packed = static_cast<std::uint8_t*>(scratch);
    if (count < many_from<F>) {
        for (std::size_t tile = first_tile; tile < last_tile; ++tile) {
            const std::size_t n = tile * tile_rows, lanes = w.n - n < tile_rows ? w.n - n : tile_rows;
            few_rows<F>(job, tile_at<F>(w, tile, packed), 0, count, n, lanes);
        }
        return;
    }
    // Steps of rows as even as can be: none is left with a few.
    const std::size_t most = panel_rows(a.blocks);
    const std::size_t steps = (count + most - 1) / most;
#if defined(STRATA_ISA_AMX)
    const AmxScope amx;
#endif
    ManyScratch s;
    s.wide = packed + (2 * w.tile_bytes + 63) / 64 * 64;
    s.panel = reinterpret_cast<Record*>(s.wide + 2 * chunk * widest);
    s.kept = reinterpret_cast<float*>(s.panel + (most + 16) * a.blocks);
    for (std::size_t step = 0; step < steps; ++step) {
        const std::size_t first = count * step / steps, rows = count * (step + 1) / steps - first;
        fill_panel<F>(a, row_index, first, rows, s.panel);
        std::size_t tile = first_tile;
        if constexpr (tiles_at_once == 2)
            for (; tile + 2 <= last_tile; tile += 2) product_of_tiles<F, 2>(w, job, first, rows, tile, last_tile, packed, s);
        for (; tile < last_tile; ++tile) product_of_tiles<F, 1>(w, job, first, rows, tile, last_tile, packed, s);
    }
}

template <class F>
void add_format(Kernels& k) {
    k.product[F::number] = product_tiles<F>;
    k.repack[F::number] = pack_tile<F>;
    k.dequantize[F::number] = dequantize_rows<F>;
    k.group_blocks[F::number] = F::blocks;
    k.group_bytes[F::number] = F::group_bytes;
}

}  // namespace
}  // namespace STRATA_ISA
}  // namespace strata
