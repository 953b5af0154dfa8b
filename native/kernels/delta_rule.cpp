// The gated delta rule of one head, 32 columns of its state at a time: they stay in the nearest cache over all rows.
// docs/arithmetic.md, section 9.
#include "kernels.h"
#include "simd_math.h"

namespace strata {
namespace STRATA_ISA {
namespace {

constexpr int width = 2;  // vectors of the columns
constexpr std::size_t columns = width * lanes;

// Columns of the state, (dk, 32); those past the head's width are zeros.
struct Columns {
    float* s;
    std::size_t dk;
};

// out = tree over i of leaf(i), each leaf two vectors.
template <class F>
STRATA_OP void tree_of(std::size_t count, Floats out[width], F leaf) {
    Tree<width> tree;
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        Floats a[width], b[width], c[width], d[width];
        const auto pair = [&](std::size_t at, Floats sum[width]) {
            Floats other[width];
            leaf(at, sum);
            leaf(at + 1, other);
            for (int w = 0; w < width; ++w) sum[w] = add(sum[w], other[w]);
        };
        pair(i, a);
        pair(i + 2, b);
        pair(i + 4, c);
        pair(i + 6, d);
        for (int w = 0; w < width; ++w) a[w] = add(add(a[w], b[w]), add(c[w], d[w]));
        tree.push(a, 3);
    }
    for (; i < count; ++i) {
        Floats one[width];
        leaf(i, one);
        tree.push(one, 0);
    }
    tree.finish(out);
}

// One token: the state decays, and the memory of k is replaced in part by v.
STRATA_OP void update(Columns c, const float* k, const Floats v[width], float decay, float beta) {
    const Floats g = all_floats(decay);
    Floats delta[width];
    tree_of(c.dk, delta, [&](std::size_t i, Floats leaf[width]) {
        const Floats key = all_floats(k[i]);
        for (int w = 0; w < width; ++w) {
            float* at = c.s + i * columns + std::size_t(w) * lanes;
            const Floats s = mul(load_floats(at), g);
            store_floats(at, s);
            leaf[w] = mul(s, key);
        }
    });
    for (int w = 0; w < width; ++w) delta[w] = mul(sub(v[w], delta[w]), all_floats(beta));
    for (std::size_t i = 0; i < c.dk; ++i) {
        const Floats key = all_floats(k[i]);
        for (int w = 0; w < width; ++w) {
            float* at = c.s + i * columns + std::size_t(w) * lanes;
            store_floats(at, add(load_floats(at), mul(key, delta[w])));
        }
    }
}

STRATA_OP void load_columns(const float* p, std::size_t count, Floats v[width]) {
    for (int w = 0; w < width; ++w) {
        const std::size_t at = std::size_t(w) * lanes;
        v[w] = count <= at ? zero_floats() : load_up_to(p + at, count - at);
    }
}

STRATA_OP void store_columns(float* p, std::size_t count, const Floats v[width]) {
    for (int w = 0; w < width; ++w) {
        const std::size_t at = std::size_t(w) * lanes;
        if (count > at) store_up_to(p + at, v[w], count - at);
    }
}

void delta_rule(const DeltaWork& work) {
    const std::size_t some = work.last - work.first;
    const Columns c{work.scratch, work.dk};
    for (std::size_t i = 0; i < work.dk; ++i) {
        Floats row[width];
        load_columns(work.from + i * work.dv + work.first, some, row);
        store_columns(c.s + i * columns, columns, row);
    }
    const auto store = [&] {
        if (!work.to) return;
        for (std::size_t i = 0; i < work.dk; ++i) {
            Floats row[width];
            load_columns(c.s + i * columns, columns, row);
            store_columns(work.to + i * work.dv + work.first, some, row);
        }
    };
    const auto step = [&](const DeltaWork::Rows& rows, std::size_t t) {
        Floats v[width];
        load_columns(rows.v + t * rows.v_stride + work.first, some, v);
        update(c, rows.k + t * rows.k_stride, v, rows.decay[t * rows.gate_stride], rows.beta[t * rows.gate_stride]);
    };
    for (std::size_t t = 0; t < work.replayed; ++t) step(work.replay, t);
    if (work.committed == 0) store();
    for (std::size_t t = 0; t < work.count; ++t) {
        step(work.rows, t);
        const float* q = work.rows.q + t * work.rows.q_stride;
        Floats out[width];
        tree_of(c.dk, out, [&](std::size_t i, Floats leaf[width]) {
            const Floats query = all_floats(q[i]);
            for (int w = 0; w < width; ++w) leaf[w] = mul(load_floats(c.s + i * columns + std::size_t(w) * lanes), query);
        });
        store_columns(work.out + t * work.out_stride + work.first, some, out);
        if (t + 1 == work.committed) store();
    }
}

}  // namespace

void fill_delta_rule(Kernels& k) { k.window.delta_rule = delta_rule; }

}  // namespace STRATA_ISA
}  // namespace strata
