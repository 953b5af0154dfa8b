// The table of one instruction set: every kernel file adds its own.
#include "kernels.h"

namespace strata {
namespace STRATA_ISA {

void fill_quantize(Kernels&);

void fill(Kernels& k) { fill_quantize(k); }

}  // namespace STRATA_ISA
}  // namespace strata
