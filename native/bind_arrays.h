// Arrays as bindings take them, and their refusal of what does not fit.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace strata {

template <typename T, std::size_t Rank>
using In = nanobind::ndarray<const T, nanobind::ndim<Rank>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T, std::size_t Rank>
using Out = nanobind::ndarray<T, nanobind::ndim<Rank>, nanobind::c_contig, nanobind::device::cpu>;

// The sentence is made before the check: in a loop over elements, test first.
inline void need(bool fits, const std::string& sentence) {
    if (!fits) throw std::invalid_argument(sentence);
}

}  // namespace strata
