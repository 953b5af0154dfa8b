// The table of one instruction set: every kernel file adds its own.
#include "kernels.h"

namespace strata {
namespace STRATA_ISA {

void fill_measure(Kernels&);
void fill_product_grid_iq1(Kernels&);
void fill_product_grid_iq2(Kernels&);
void fill_product_grid_iq3(Kernels&);
void fill_product_float(Kernels&);
void fill_product_k(Kernels&);
void fill_product_nibbles(Kernels&);
void fill_quantize(Kernels&);
void fill_norms(Kernels&);
void fill_elementwise(Kernels&);
void fill_delta_rule(Kernels&);
void fill_attend(Kernels&);

void fill(Kernels& k) {
    fill_measure(k);
    fill_product_grid_iq1(k);
    fill_product_grid_iq2(k);
    fill_product_grid_iq3(k);
    fill_product_float(k);
    fill_product_k(k);
    fill_product_nibbles(k);
    fill_quantize(k);
    fill_norms(k);
    fill_elementwise(k);
    fill_delta_rule(k);
    fill_attend(k);
}

}  // namespace STRATA_ISA
}  // namespace strata
