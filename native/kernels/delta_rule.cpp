// The gated delta rule of one head; docs/arithmetic.md, section 9. Over several rows, 32 columns of the state at a time
// stay in the nearest cache, and a row passes over them once; a single row reads whole rows of the state as they lie.
#include "kernels.h"
#include "simd_math.h"

namespace strata {
namespace STRATA_ISA {
namespace {

constexpr std::size_t width = 2;  // vectors of a block of columns
constexpr std::size_t columns = width * lanes, most_blocks = 8;
static_assert(columns == delta_columns);

// Columns of a block, `count` of them where the block is not whole.
template <bool whole = false>
STRATA_OP void load_columns(const float* p, std::size_t count, Floats v[width]) {
    if constexpr (whole) count = columns;
    STRATA_UNROLL for (std::size_t w = 0; w < width; ++w) {
        const std::size_t at = w * lanes;
        v[w] = count <= at ? zero_floats() : load_up_to(p + at, count - at);
    }
}

template <bool whole = false>
STRATA_OP void store_columns(float* p, std::size_t count, const Floats v[width]) {
    if constexpr (whole) count = columns;
    STRATA_UNROLL for (std::size_t w = 0; w < width; ++w) {
        const std::size_t at = w * lanes;
        if (count > at) store_up_to(p + at, v[w], count - at);
    }
}

STRATA_OP void add_to(Floats a[width], const Floats b[width]) {
    STRATA_UNROLL for (std::size_t w = 0; w < width; ++w) a[w] = add(a[w], b[w]);
}

// `trees` trees over rows [first, first + 8) or fewer: leaf(i, out) gives row i's leaf of every tree.
template <int trees, class F>
STRATA_OP void push_rows(Tree<width> (&into)[trees], std::size_t first, std::size_t count, F leaf) {
    if (count < 8) {
        for (std::size_t i = first; i < first + count; ++i) {
            Floats one[trees][width];
            leaf(i, one);
            for (int t = 0; t < trees; ++t) into[t].push(one[t], 0);
        }
        return;
    }
    Floats eight[trees][width], four[trees][width], two[trees][width], one[trees][width];
    const auto pair = [&](std::size_t i, Floats (&sum)[trees][width]) STRATA_INLINED {
        leaf(i, sum);
        leaf(i + 1, one);
        STRATA_UNROLL for (int t = 0; t < trees; ++t) add_to(sum[t], one[t]);
    };
    const auto quad = [&](std::size_t i, Floats (&sum)[trees][width]) STRATA_INLINED {
        pair(i, sum);
        pair(i + 2, two);
        STRATA_UNROLL for (int t = 0; t < trees; ++t) add_to(sum[t], two[t]);
    };
    quad(first, eight);
    quad(first + 4, four);
    STRATA_UNROLL for (int t = 0; t < trees; ++t) {
        add_to(eight[t], four[t]);
        into[t].push(eight[t], 3);
    }
}

// (v - memory) * beta
STRATA_OP void correction(const float* v, std::size_t some, float beta, Floats memory[width]) {
    Floats value[width];
    load_columns(v, some, value);
    STRATA_UNROLL for (std::size_t w = 0; w < width; ++w) memory[w] = mul(sub(value[w], memory[w]), all_floats(beta));
}

// One row and no others: out from the state before it, and the state after it where it is wanted.
template <bool whole>
void one_row(const DeltaWork& work) {
    const DeltaWork::Rows& rows = work.rows;
    const Floats decay = all_floats(rows.decay[0]);
    Floats delta[most_blocks][width];
    for (std::size_t begin = work.first; begin < work.last; begin += most_blocks * columns) {
        const std::size_t end = work.last - begin < most_blocks * columns ? work.last : begin + most_blocks * columns;
        const std::size_t blocks = (end - begin + columns - 1) / columns;
        const auto some = [&](std::size_t b) { return end - (begin + b * columns); };
        Tree<width> memory[most_blocks][1], result[most_blocks][1];
        for (std::size_t i = 0; i < work.dk; i += 8)
            for (std::size_t b = 0; b < blocks; ++b)
                push_rows<1>(memory[b], i, work.dk - i < 8 ? work.dk - i : 8, [&](std::size_t row, Floats (&leaf)[1][width]) STRATA_INLINED {
                    load_columns<whole>(work.from + row * work.dv + begin + b * columns, some(b), leaf[0]);
                    const Floats key = all_floats(rows.k[row]);
                    STRATA_UNROLL for (Floats& s : leaf[0]) s = mul(mul(s, decay), key);
                });
        for (std::size_t b = 0; b < blocks; ++b) {
            memory[b][0].finish(delta[b]);
            correction(rows.v + begin + b * columns, some(b), rows.beta[0], delta[b]);
        }
        for (std::size_t i = 0; i < work.dk; i += 8)
            for (std::size_t b = 0; b < blocks; ++b)
                push_rows<1>(result[b], i, work.dk - i < 8 ? work.dk - i : 8, [&](std::size_t row, Floats (&leaf)[1][width]) STRATA_INLINED {
                    const std::size_t at = row * work.dv + begin + b * columns;
                    load_columns<whole>(work.from + at, some(b), leaf[0]);
                    const Floats key = all_floats(rows.k[row]), query = all_floats(rows.q[row]);
                    STRATA_UNROLL for (std::size_t w = 0; w < width; ++w)
                        leaf[0][w] = add(mul(leaf[0][w], decay), mul(key, delta[b][w]));
                    if (work.to) store_columns<whole>(work.to + at, some(b), leaf[0]);
                    STRATA_UNROLL for (Floats& s : leaf[0]) s = mul(s, query);
                });
        for (std::size_t b = 0; b < blocks; ++b) {
            Floats out[width];
            result[b][0].finish(out);
            store_columns<whole>(work.out + begin + b * columns, some(b), out);
        }
    }
}

// A block of columns over all rows, the replayed ones first. Between two rows the columns are kept decayed for the next.
class Columns {
public:
    Columns(const DeltaWork& work, std::size_t first)
        : work_(work), first_(first), some_(work.last - first < columns ? work.last - first : columns) {}

    STRATA_MEMBER void run() {
        const std::size_t rows = work_.replayed + work_.count;
        const std::size_t kept = work_.to ? work_.replayed + work_.committed : 0;  // rows after which the state is kept
        if (work_.to && kept == 0) copy();
        if (rows == 0) return;
        Floats delta[width];
        begin(delta);
        for (std::size_t t = 0; t < rows; ++t) {
            correction(source(t).v + index(t) * source(t).v_stride + first_, some_,
                       source(t).beta[index(t) * source(t).gate_stride], delta);
            const bool wanted = t >= work_.replayed, store = t + 1 == kept, last = t + 1 == rows;
            if (!wanted && !last) step<false>(t, delta, store);
            else if (!wanted) finish<false>(t, delta, store);
            else if (!last) step<true>(t, delta, store);
            else finish<true>(t, delta, store);
        }
    }

private:
    STRATA_MEMBER const DeltaWork::Rows& source(std::size_t t) const { return t < work_.replayed ? work_.replay : work_.rows; }
    STRATA_MEMBER std::size_t index(std::size_t t) const { return t < work_.replayed ? t : t - work_.replayed; }
    STRATA_MEMBER const float* key(std::size_t t) const { return source(t).k + index(t) * source(t).k_stride; }
    STRATA_MEMBER Floats decay(std::size_t t) const { return all_floats(source(t).decay[index(t) * source(t).gate_stride]); }
    STRATA_MEMBER std::size_t rows_at(std::size_t i) const { return work_.dk - i < 8 ? work_.dk - i : 8; }
    STRATA_MEMBER float* kept_row(std::size_t i) const { return work_.to + i * work_.dv + first_; }

    void copy() {
        for (std::size_t i = 0; i < work_.dk; ++i) {
            Floats row[width];
            load_columns(work_.from + i * work_.dv + first_, some_, row);
            store_columns(kept_row(i), some_, row);
        }
    }

    // The state decayed for the first row, and what it remembers of that row's key.
    STRATA_MEMBER void begin(Floats memory[width]) {
        const Floats g = decay(0);
        const float* k = key(0);
        Tree<width> tree[1];
        for (std::size_t i = 0; i < work_.dk; i += 8)
            push_rows<1>(tree, i, rows_at(i), [&](std::size_t row, Floats (&leaf)[1][width]) STRATA_INLINED {
                load_columns(work_.from + row * work_.dv + first_, some_, leaf[0]);
                STRATA_UNROLL for (Floats& s : leaf[0]) s = mul(s, g);
                store_columns<true>(work_.scratch + row * columns, columns, leaf[0]);
                STRATA_UNROLL for (Floats& s : leaf[0]) s = mul(s, all_floats(k[row]));
            });
        tree[0].finish(memory);
    }

    // Row t with a row after it: its output, and in `delta` what the state, decayed, remembers of the next key.
    template <bool wanted>
    STRATA_MEMBER void step(std::size_t t, Floats delta[width], bool store) {
        const float *k = key(t), *q = wanted ? work_.rows.q + index(t) * work_.rows.q_stride : nullptr, *next = key(t + 1);
        const Floats g = decay(t + 1);
        Tree<width> tree[2];
        for (std::size_t i = 0; i < work_.dk; i += 8)
            push_rows<2>(tree, i, rows_at(i), [&](std::size_t row, Floats (&leaf)[2][width]) STRATA_INLINED {
                float* at = work_.scratch + row * columns;
                Floats s[width];
                load_columns<true>(at, columns, s);
                STRATA_UNROLL for (std::size_t w = 0; w < width; ++w) s[w] = add(s[w], mul(all_floats(k[row]), delta[w]));
                if (store) store_columns(kept_row(row), some_, s);
                STRATA_UNROLL for (std::size_t w = 0; w < width; ++w) {
                    leaf[1][w] = wanted ? mul(s[w], all_floats(wanted ? q[row] : 0.0f)) : zero_floats();
                    s[w] = mul(s[w], g);
                    leaf[0][w] = mul(s[w], all_floats(next[row]));
                }
                store_columns<true>(at, columns, s);
            });
        if (wanted) write(t, tree[1]);
        tree[0].finish(delta);
    }

    // The last row.
    template <bool wanted>
    STRATA_MEMBER void finish(std::size_t t, const Floats delta[width], bool store) {
        const float *k = key(t), *q = wanted ? work_.rows.q + index(t) * work_.rows.q_stride : nullptr;
        Tree<width> tree[1];
        for (std::size_t i = 0; i < work_.dk; i += 8)
            push_rows<1>(tree, i, rows_at(i), [&](std::size_t row, Floats (&leaf)[1][width]) STRATA_INLINED {
                Floats s[width];
                load_columns<true>(work_.scratch + row * columns, columns, s);
                STRATA_UNROLL for (std::size_t w = 0; w < width; ++w) s[w] = add(s[w], mul(all_floats(k[row]), delta[w]));
                if (store) store_columns(kept_row(row), some_, s);
                STRATA_UNROLL for (std::size_t w = 0; w < width; ++w)
                    leaf[0][w] = wanted ? mul(s[w], all_floats(wanted ? q[row] : 0.0f)) : zero_floats();
            });
        if (wanted) write(t, tree[0]);
    }

    STRATA_MEMBER void write(std::size_t t, const Tree<width>& tree) {
        Floats out[width];
        tree.finish(out);
        store_columns(work_.out + index(t) * work_.out_stride + first_, some_, out);
    }

    const DeltaWork& work_;
    std::size_t first_, some_;
};

void delta_rule(const DeltaWork& work) {
    if (work.replayed == 0 && work.count == 1 && (work.to == nullptr || work.committed == 1))
        return (work.last - work.first) % columns == 0 ? one_row<true>(work) : one_row<false>(work);
    for (std::size_t first = work.first; first < work.last; first += columns) Columns(work, first).run();
}

}  // namespace

void fill_delta_rule(Kernels& k) { k.window.delta_rule = delta_rule; }

}  // namespace STRATA_ISA
}  // namespace strata
