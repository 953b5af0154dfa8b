// The model and its lanes as Python holds them.
#pragma once
#include <nanobind/nanobind.h>

#include <memory>

#include "model.h"

namespace strata {

struct ModelHandle {
    std::unique_ptr<Model> model;
    nanobind::list kept;    // matrices and arrays that the weights point into
    nanobind::object rope;  // the arrays of set_rope
};

void bind_forward(nanobind::module_& m);
void bind_load(nanobind::module_& m);
void bind_state(nanobind::module_& m);
void bind_sampling(nanobind::module_& m);
void bind_ops(nanobind::module_& m);

}  // namespace strata
