// A weight matrix as Python hands it to the ops: the description, and the arrays that keep its bytes alive.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <optional>

#include "product.h"

namespace strata {

struct MatrixHandle {
    using Bytes = nanobind::ndarray<const std::uint8_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
    Matrix matrix{};
    std::optional<Bytes> raw;
    const std::uint8_t *map_begin = nullptr, *map_end = nullptr;  // the read-only file map that raw lies in, if any
    std::shared_ptr<void> memory;  // of tiles made by repack_all
};

void bind_product(nanobind::module_& m);

}  // namespace strata
