// The window's kernels one by one, for the tests that compare each with the numpy reference.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bind_arrays.h"
#include "bind_forward.h"
#include "bind_product.h"
#include "kernels.h"
#include "memory.h"
#include "rows.h"
#include "select.h"

namespace nb = nanobind;

namespace strata {
namespace {

const WindowKernels& run() { return kernels().window; }

// y = name(x, ...) of one row, by name; `b` and `c` are the op's other rows.
void elementwise(const std::string& name, In<float, 1> x, In<float, 1> b, In<float, 1> c, float number, Out<float, 1> y) {
    const std::size_t n = x.size();
    need(y.size() == n, "y does not fit x");
    float* out = y.data();
    if (name == "silu_times") return run().silu_times(x.data(), b.data(), out, n);
    if (name == "sigmoid_times") return run().sigmoid_times(x.data(), b.data(), out, n);
    if (name == "decay") return run().decay(x.data(), b.data(), c.data(), out, n);
    if (name == "exp_minus") return run().exp_minus(x.data(), number, out, n);
    if (name == "ngram_gate") return run().ngram_gate(number, x.data(), out, n);
    if (name == "l2_norm") return run().l2_norm(x.data(), out, n, number);
    std::copy_n(x.data(), n, out);
    if (name == "silu_share") return run().silu_share(out, n, number);
    if (name == "inject_weights") return run().inject_weights(out, n, number);
    if (name == "sigmoid") return run().sigmoid(out, n);
    if (name == "rope") return run().rope(out, b.data(), c.data(), b.size());
    if (name == "add_ngram") return run().add_ngram(out, b.data(), c.data(), n);
    throw std::invalid_argument("no op is called " + name);
}

void rms_norm(In<float, 1> x, In<float, 1> gamma, Out<float, 1> y, std::size_t group, float eps) {
    need(x.size() == y.size() && x.size() == gamma.size() && x.size() % group == 0, "rows do not fit");
    run().rms_norm(x.data(), gamma.data(), y.data(), x.size(), group, eps);
}

void gated_norm(In<float, 1> x, In<float, 1> gate, In<float, 1> gamma, Out<float, 1> y, float eps, bool silu) {
    need(x.size() == y.size() && x.size() == gamma.size() && x.size() == gate.size(), "rows do not fit");
    run().gated_norm(x.data(), gate.data(), gamma.data(), y.data(), x.size(), eps, silu);
}

void conv_silu(In<float, 2> rows, In<float, 2> weight, Out<float, 1> y) {
    need(rows.shape(0) == weight.shape(0) && rows.shape(1) == weight.shape(1) && y.size() == rows.shape(1), "rows do not fit");
    std::vector<const float*> taps;
    for (std::size_t t = 0; t < rows.shape(0); ++t) taps.push_back(rows.data() + t * rows.shape(1));
    run().conv_silu(taps.data(), taps.size(), weight.data(), y.data(), y.size());
}

void mix_streams(In<float, 2> logits, In<float, 2> flat, Out<float, 1> y) {
    need(logits.size() == flat.size() && y.size() == flat.shape(1), "rows do not fit");
    run().mix_streams(logits.data(), flat.data(), y.data(), flat.shape(0), flat.shape(1));
}

void inject(Out<float, 2> x, In<float, 1> output, In<float, 1> weights) {
    need(x.shape(0) == weights.size() && x.shape(1) == output.size(), "rows do not fit");
    run().inject(x.data(), output.data(), weights.data(), x.shape(0), x.shape(1));
}

void mix_experts(In<float, 2> rows, In<float, 1> weights, In<float, 1> shared, float gate, Out<float, 1> y) {
    need(rows.shape(0) == weights.size() && rows.shape(1) == y.size() && shared.size() == y.size(), "rows do not fit");
    std::vector<const float*> parts;
    for (std::size_t e = 0; e < rows.shape(0); ++e) parts.push_back(rows.data() + e * rows.shape(1));
    run().mix_experts(parts.data(), weights.data(), parts.size(), shared.data(), gate, y.data(), y.size());
}

void round_row(In<float, 1> x, Out<float, 1> y, int format) {
    need(x.size() == y.size(), "y does not fit x");
    Aligned<std::uint8_t> kept = aligned<std::uint8_t>(4 * x.size());
    run().round_row(x.data(), kept.get(), x.size(), format);
    run().widen_row(kept.get(), y.data(), x.size(), format);
}

void pool_keys(In<float, 2> rows, Out<float, 1> y) {
    need(rows.shape(1) == y.size(), "y does not fit");
    run().pool_keys(rows.data(), rows.shape(0), y.data(), y.size());
}

// The delta rule of one head over rows, the first `replayed` as accepted drafts, the last `tentative` as drafts.
void delta_rule(In<float, 2> from, Out<float, 2> to, In<float, 2> q, In<float, 2> k, In<float, 2> v, In<float, 1> decay,
                In<float, 1> beta, std::size_t replayed, std::size_t tentative, Out<float, 2> out) {
    const std::size_t dk = from.shape(0), dv = from.shape(1), count = k.shape(0);
    need(replayed + tentative <= count && q.shape(0) == count && v.shape(0) == count && out.shape(0) == count &&
             decay.size() == count && beta.size() == count,
         "rows do not fit");
    need(to.shape(0) == dk && q.shape(1) == dk && k.shape(1) == dk && to.shape(1) == dv && v.shape(1) == dv &&
             out.shape(1) == dv,
         "a head's dimensions do not fit");
    std::vector<float> scratch(delta_scratch(dk));
    const std::size_t columns = count == 1 && replayed == 0 ? dv : delta_columns;  // as a window has it
    for (std::size_t first = 0; first < dv; first += columns) {
        DeltaWork work{};
        work.from = from.data();
        work.to = to.data();
        work.dk = dk;
        work.dv = dv;
        work.first = first;
        work.last = first + columns < dv ? first + columns : dv;
        work.replay = {nullptr, k.data(), v.data(), decay.data(), beta.data(), dk, dk, dv, 1};
        work.replayed = replayed;
        const std::size_t r = replayed;
        work.rows = {q.data() + r * dk, k.data() + r * dk, v.data() + r * dv, decay.data() + r, beta.data() + r, dk, dk, dv, 1};
        work.count = count - replayed;
        work.committed = work.count - tentative;
        work.out = out.data() + r * dv;
        work.out_stride = dv;
        work.scratch = scratch.data();
        run().delta_rule(work);
    }
}

// One row's attention over keys of one group: q (H, D), k and v (n, D) as the cache's bits.
void attend(In<float, 2> q, In<std::uint8_t, 2> k, In<std::uint8_t, 2> v, float scale, int format, Out<float, 2> out) {
    const std::size_t heads = q.shape(0), dim = q.shape(1), count = k.shape(0);
    std::vector<float> part(heads * (dim + 2)), whole(part.size()), scores(heads * attend_block), memory(attend_memory(heads));
    AttendWork work{q.data(), heads, dim, scale, format, part.data(), part.data() + heads, part.data() + 2 * heads,
                    scores.data(), memory.data()};
    for (std::size_t first = 0; first < count; first += attend_block) {
        const std::size_t some = count - first < attend_block ? count - first : attend_block;
        if (first % attend_partial == 0) run().attend_start(work);
        run().attend_block(work, {k.data() + first * k.shape(1), v.data() + first * v.shape(1), some});
        if (first + some != count && (first + some) % attend_partial != 0) continue;
        if (first < attend_partial)
            whole = part;
        else
            run().attend_merge(whole.data(), whole.data() + heads, whole.data() + 2 * heads, work);
    }
    run().attend_finish(whole.data() + heads, whole.data() + 2 * heads, out.data(), heads, dim);
}

void select(In<float, 1> values, Out<std::uint32_t, 1> chosen, bool ranked) {
    std::vector<std::uint32_t> room(values.size() + 1);
    (ranked ? rank_largest : select_largest)(values.data(), values.size(), chosen.size(), room.data());
    std::copy_n(room.data(), chosen.size(), chosen.data());
}

void dequantize(const MatrixHandle& w, In<std::int64_t, 1> rows, Out<float, 2> y) {
    need(y.shape(0) == rows.size() && y.shape(1) == w.matrix.k, "y does not fit");
    for (std::size_t i = 0; i < rows.size(); ++i)
        need(rows.data()[i] >= 0 && std::size_t(rows.data()[i]) < w.matrix.n, "a row is outside the matrix");
    dequantize_rows(w.matrix, rows.data(), rows.size(), y.data(), w.matrix.k);
}

}  // namespace

void bind_ops(nb::module_& m) {
    m.def("elementwise", &elementwise, nb::arg("name"), nb::arg("x"), nb::arg("b"), nb::arg("c"), nb::arg("number"), nb::arg("y"));
    m.def("rms_norm", &rms_norm, nb::arg("x"), nb::arg("gamma"), nb::arg("y"), nb::arg("group"), nb::arg("eps"));
    m.def("gated_norm", &gated_norm, nb::arg("x"), nb::arg("gate"), nb::arg("gamma"), nb::arg("y"), nb::arg("eps"), nb::arg("silu"));
    m.def("conv_silu", &conv_silu, nb::arg("rows"), nb::arg("weight"), nb::arg("y"));
    m.def("mix_streams", &mix_streams, nb::arg("logits"), nb::arg("flat"), nb::arg("y"));
    m.def("inject", &inject, nb::arg("x"), nb::arg("output"), nb::arg("weights"));
    m.def("mix_experts", &mix_experts, nb::arg("rows"), nb::arg("weights"), nb::arg("shared"), nb::arg("gate"), nb::arg("y"));
    m.def("round_row", &round_row, nb::arg("x"), nb::arg("y"), nb::arg("format"));
    m.def("pool_keys", &pool_keys, nb::arg("rows"), nb::arg("y"));
    m.def("delta_rule", &delta_rule, nb::arg("state"), nb::arg("after"), nb::arg("q"), nb::arg("k"), nb::arg("v"),
          nb::arg("decay"), nb::arg("beta"), nb::arg("replayed"), nb::arg("tentative"), nb::arg("out"));
    m.def("attend", &attend, nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("scale"), nb::arg("format"), nb::arg("out"));
    m.def("select", &select, nb::arg("values"), nb::arg("chosen"), nb::arg("ranked"));
    m.def("dequantize", &dequantize, nb::arg("w"), nb::arg("rows"), nb::arg("y"));
}

}  // namespace strata
