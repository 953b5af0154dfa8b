// The product of any number of rows with a run of tiles, for one format: few rows unpack each block as they use it; many
// rows share an unpacked tile in scratch memory.
#pragma once
#include "dequantize_tile.h"
#include "product_tile.h"

namespace strata {
namespace STRATA_ISA {
namespace {

// A tile of F unpacked: every block is its 32 codes (512 bytes) and those of its scales that F has, as floats.
template <class F>
struct Wide : Traits<F::offset < 0 || !offset_dots ? F::offset : 7, F::sub, F::min, F::transposed, F::two_scales> {
    static constexpr int subs = F::sub == Sub::none ? 0 : F::sub == Sub::block ? 1 : 2;
    static constexpr int minimums = F::min == Min::block ? 1 : F::min == Min::half ? 2 : 0;
    static constexpr int floats = (F::two_scales ? 2 : 1) + subs + minimums + (F::min != Min::none);
    static constexpr std::size_t stride = 512 + 64 * floats;
    static constexpr std::size_t blocks = 4;
    static constexpr std::size_t group_bytes(std::size_t nb) { return nb * stride; }

    template <int b>
    STRATA_OP void codes(const std::uint8_t* group, Bytes w[8]) {
        STRATA_UNROLL for (int i = 0; i < 8; ++i) w[i] = load_bytes(group + b * stride + 64 * i);
    }

    template <int b>
    STRATA_OP void scales(const std::uint8_t* group, std::size_t, Scales& s) {
        const float* at = reinterpret_cast<const float*>(group + b * stride + 512);
        const auto next = [&at] {
            const Floats v = load_floats(at);
            at += 16;
            return v;
        };
        s.d[0] = next();
        if constexpr (F::two_scales) s.d[1] = next();
        STRATA_UNROLL for (int i = 0; i < subs; ++i) s.sub[i] = next();
        STRATA_UNROLL for (int i = 0; i < minimums; ++i) s.minimum[i] = next();
        if constexpr (F::min != Min::none) s.dmin = next();
    }

    template <int b>
    STRATA_OP void widen_block(const std::uint8_t* group, std::size_t nb, std::uint8_t* out) {
        Bytes w[8];
        Scales s;
        F::template codes<b>(group, w);
        F::template scales<b>(group, nb, s);
        constexpr int shift = F::offset < 0 || !offset_dots ? 0 : 128 - (1 << F::offset);
        STRATA_UNROLL for (int i = 0; i < 8; ++i) store_bytes(out + 64 * i, shift ? add_bytes(w[i], all_bytes(shift)) : w[i]);
        float* at = reinterpret_cast<float*>(out + 512);
        const auto put = [&at](Floats v) {
            store_floats(at, v);
            at += 16;
        };
        put(s.d[0]);
        if constexpr (F::two_scales) put(s.d[1]);
        STRATA_UNROLL for (int i = 0; i < subs; ++i) put(s.sub[i]);
        STRATA_UNROLL for (int i = 0; i < minimums; ++i) put(s.minimum[i]);
        if constexpr (F::min != Min::none) put(s.dmin);
    }

    template <int b>
    STRATA_OP void widen_from(const std::uint8_t* group, std::size_t nb, std::uint8_t* out) {
        if (nb <= b) return;
        widen_block<b>(group, nb, out);
        if constexpr (b + 1 < F::blocks) widen_from<b + 1>(group, nb, out + stride);
    }
};

template <class F>
__attribute__((noinline)) void widen(const std::uint8_t* tile, std::size_t blocks, std::uint8_t* out) {
    for (std::size_t at = 0; at < blocks; at += F::blocks) {
        const std::size_t nb = blocks - at < F::blocks ? blocks - at : F::blocks;
        Wide<F>::template widen_from<0>(tile, nb, out);
        tile += F::group_bytes(nb);
        out += nb * Wide<F>::stride;
    }
}

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
void many_rows(const Job& job, const std::uint8_t* wide, std::size_t first, std::size_t last, std::size_t n,
               std::size_t lanes) {
    if constexpr (wide_registers) rows_by<Wide<F>, 12>(job, wide, first, last, n, lanes);
    rows_by<Wide<F>, 4>(job, wide, first, last, n, lanes);
    rows_by<Wide<F>, 1>(job, wide, first, last, n, lanes);
}

constexpr std::size_t many = 10;           // rows from which a tile is unpacked first
constexpr std::size_t kept_bytes = 1 << 18;  // quantized rows that stay in the second cache while tiles pass by

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
    for (std::size_t r = 0; r < tile_rows; ++r) {
        const std::size_t n = tile * tile_rows + r;
        rows[r] = w.raw + (n < w.n ? n : w.n - 1) * w.row_bytes;
    }
    pack_tile<F>(rows, w.k, scratch);
    return scratch;
}

template <class F>
void product_tiles(const Matrix& w, const Activations& a, const std::uint32_t* row_index, std::size_t count,
                   std::size_t first_tile, std::size_t last_tile, float* y, std::size_t y_stride, void* scratch) {
    const Job job{&a, row_index, y, y_stride};
    std::uint8_t* packed = static_cast<std::uint8_t*>(scratch);
    std::uint8_t* wide = packed + (w.tile_bytes + 63) / 64 * 64;
    std::size_t step = count;
    if (count >= many) {
        step = kept_bytes / (a.stride * sizeof(Record)) / 12 * 12;
        if (step < 24) step = 24;
    }
    for (std::size_t first = 0; first < count; first += step) {
        const std::size_t last = count - first < step ? count : first + step;
        for (std::size_t tile = first_tile; tile < last_tile; ++tile) {
            const std::size_t n = tile * tile_rows, lanes = w.n - n < tile_rows ? w.n - n : tile_rows;
            const std::uint8_t* at = tile_at<F>(w, tile, packed);
            if (last - first < many) {
                few_rows<F>(job, at, first, last, n, lanes);
            } else {
                widen<F>(at, a.blocks, wide);
                many_rows<F>(job, wide, first, last, n, lanes);
            }
        }
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
