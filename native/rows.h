// Rows of a matrix as floats, read straight from the file's bytes.
#pragma once
#include <cstdint>

#include "product.h"

namespace strata {

inline bool is_float(const Matrix& w) { return w.format == 0 || w.format == 1 || w.format == 30; }

// Rows of w, dequantized: row rows[i] at out + i * stride, w.k floats; docs/arithmetic.md, section 17.
void dequantize_rows(const Matrix& w, const std::int64_t* rows, std::size_t count, float* out, std::size_t stride);

// Ask the system to read the pages of these rows ahead.
void read_ahead(const Matrix& w, const std::int64_t* rows, std::size_t count);

}  // namespace strata
