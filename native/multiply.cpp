// Rows times matrices in a window: rows are quantized once, and the work is split by tiles of the weight.
#include "model.h"
#include "rows.h"

namespace strata {
Activations Model::activations(const float* x, std::size_t rows, std::size_t k, Scratch& memory, bool quantize) {
    const Activations a = activations_at(memory.get<std::uint8_t>(activation_bytes(rows, k)), x, rows, k);
    if (!quantize) return a;
    if (rows == 1)
        quantize_rows(a, 0, 1);
    else
        pool_.each([&](int thread, int threads) {
            const Part part = part_of(rows, thread, threads);
            if (part.begin < part.end) quantize_rows(a, part.begin, part.end);
        });
    return a;
}

void Model::products(const float* x, std::size_t rows, std::initializer_list<Products> list) {
    bool quantize = false;
    for (const Products& p : list) quantize = quantize || !is_float(*p.w);
    multiply(activations(x, rows, list.begin()->w->k, at_.activations, quantize), list);
}

void Model::multiply(const Activations& a, std::initializer_list<Products> list) {
    const TimedProducts timed(profile);
    pool_.each([&](int thread, int threads) {
        void* scratch = product_scratch_[std::size_t(thread)].get();
        for (const Products& p : list) {
            const Matrix& w = *p.w;
            const std::size_t tiles = tiles_of(w);
            if (tiles < 2 * std::size_t(threads) && a.rows >= std::size_t(threads)) {  // a small matrix: by rows of x
                const Part part = part_of(a.rows, thread, threads);
                if (part.begin < part.end)
                    product(w, rows_from(a, part.begin), nullptr, part.end - part.begin, 0, tiles, p.y + part.begin * w.n,
                            w.n, scratch);
                continue;
            }
            const Part part = part_of(tiles, thread, threads);
            if (part.begin < part.end) product(w, a, nullptr, a.rows, part.begin, part.end, p.y, w.n, scratch);
        }
    });
}

}  // namespace strata
