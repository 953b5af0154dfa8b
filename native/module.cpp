// Python bindings of the ops: shapes are checked here, the GIL is released while they run.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <memory>
#include <optional>
#include <string>

#include "bind_forward.h"
#include "bind_product.h"
#include "ops.h"

namespace nb = nanobind;
template <typename T, std::size_t Rank>
using In = nb::ndarray<const T, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;
template <typename T, std::size_t Rank>
using Out = nb::ndarray<T, nb::ndim<Rank>, nb::c_contig, nb::device::cpu>;

namespace {

void need(bool fits, const char* what, std::size_t found, std::size_t wanted) {
    if (fits) return;
    throw nb::value_error((std::string(what) + " is " + std::to_string(found) + "; " + std::to_string(wanted) +
                           " is needed").c_str());
}

void need_equal(const char* what, std::size_t found, std::size_t wanted) { need(found == wanted, what, found, wanted); }

void gated_delta_rule(Out<float, 3> state, In<float, 3> q, In<float, 3> k, In<float, 3> v, In<float, 2> decay,
                      In<float, 2> beta, Out<float, 3> out) {
    const std::size_t heads = state.shape(0), dk = state.shape(1), dv = state.shape(2), tokens = v.shape(0);
    need_equal("size of q", q.size(), tokens * heads * dk);
    need_equal("size of k", k.size(), tokens * heads * dk);
    need_equal("size of v", v.size(), tokens * heads * dv);
    need_equal("size of out", out.size(), tokens * heads * dv);
    need_equal("size of decay", decay.size(), tokens * heads);
    need_equal("size of beta", beta.size(), tokens * heads);
    nb::gil_scoped_release free_gil;
    std::unique_ptr<float[]> scratch(new float[strata::power_of_two(dk) * dv]);
    strata::gated_delta_rule(state.data(), q.data(), k.data(), v.data(), decay.data(), beta.data(), out.data(),
                             scratch.get(), tokens, heads, dk, dv);
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "The ops in C++, bit for bit those of strata.arithmetic.";
    strata::bind_product(m);
    strata::bind_forward(m);
    strata::bind_load(m);
    strata::bind_state(m);
    strata::bind_sampling(m);
    strata::bind_ops(m);
    m.def("gated_delta_rule", &gated_delta_rule, nb::arg("state"), nb::arg("q"), nb::arg("k"), nb::arg("v"),
          nb::arg("decay"), nb::arg("beta"), nb::arg("out"),
          "Advance state (H, Dk, Dv) in place over the tokens of one conversation and write out (T, H, Dv).");
}
