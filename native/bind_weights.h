// Python's description of a model (nested dicts) to Spec and Weights.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>

#include "model.h"

namespace strata {

struct Described {
    std::shared_ptr<Spec> spec;
    Weights weights;
    std::size_t largest_k = 1;
};

// Throws std::invalid_argument or a Python error for what does not fit; `kept` gets every object that is pointed into.
Described describe(nanobind::dict spec, nanobind::dict weights, nanobind::list kept);

struct MatrixHandle;

// Repack matrices (those that have no tiles, and no float ones) with the pool's threads, into one piece of memory; bytes of
// the tiles. No window may run meanwhile.
std::size_t repack_handles(Pool& pool, const std::vector<MatrixHandle*>& matrices);

}  // namespace strata
