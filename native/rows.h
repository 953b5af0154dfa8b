// Rows of a matrix as floats, read straight from the file's bytes.
#pragma once
#include "product.h"

namespace strata {

// Row `row` of w, dequantized: w.k floats; docs/arithmetic.md, section 17.
void dequantize_row(const Matrix& w, std::size_t row, float* out);

// Ask the system to read the pages of these rows ahead.
void read_ahead(const Matrix& w, const std::int64_t* rows, std::size_t count);

}  // namespace strata
