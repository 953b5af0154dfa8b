// CRC-32 as zlib computes it; with the carry-less products of x86 several times as fast as with tables.
#pragma once
#include <cstddef>
#include <cstdint>

namespace strata {

// Whether this processor has them; without them zlib's is faster.
bool has_fast_crc32();

// The checksum of what `crc` is the checksum of (0: of nothing), followed by n bytes.
std::uint32_t crc32(std::uint32_t crc, const std::uint8_t* p, std::size_t n);

}  // namespace strata
