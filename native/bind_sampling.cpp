// Binding of the draw of a token.
#include "bind_arrays.h"
#include "bind_forward.h"
#include "sampling.h"

namespace nb = nanobind;

namespace strata {
namespace {

// The token, or -1 where a logit is NaN.
std::int64_t sample(In<float, 1> logits, float temperature, double top_p, std::size_t top_k, std::uint64_t min_weight,
                    std::uint64_t seed, std::uint64_t choice, std::uint64_t position) {
    const std::size_t n = logits.shape(0);
    need(n > 0, "there are no logits to draw from");
    nb::gil_scoped_release free_gil;
    if (has_nan(logits.data(), n)) return -1;
    return std::int64_t(draw(logits.data(), n, {temperature, top_p, top_k, min_weight, seed, choice, position}));
}

std::uint64_t first_word(std::uint64_t key0, std::uint64_t key1, std::uint64_t position) {
    const std::uint64_t counter[4] = {position, 0, 0, 0};
    return philox(key0, key1, counter);
}

}  // namespace

void bind_sampling(nb::module_& m) {
    m.def("sample", &sample, nb::arg("logits"), nb::arg("temperature"), nb::arg("top_p"), nb::arg("top_k"),
          nb::arg("min_weight"), nb::arg("seed"), nb::arg("choice"), nb::arg("position"),
          "Draw one token from a row of logits; -1 where a logit is NaN.");
    m.def("philox", &first_word, nb::arg("key0"), nb::arg("key1"), nb::arg("position"), "The first word of Philox4x64-10.");
}

}  // namespace strata
