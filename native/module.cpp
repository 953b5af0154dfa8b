// The Python module.
#include <nanobind/nanobind.h>

#include "bind_forward.h"
#include "bind_product.h"

NB_MODULE(_native, m) {
    // The process ends while a watching thread still holds the engine, and with it the model: that is no leak.
    nanobind::set_leak_warnings(false);
    m.doc() = "The ops in C++, bit for bit those of strata.arithmetic.";
    strata::bind_product(m);
    strata::bind_forward(m);
    strata::bind_load(m);
    strata::bind_state(m);
    strata::bind_sampling(m);
    strata::bind_ops(m);
}
