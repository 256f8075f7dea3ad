// Encodes mostly-zero arrays of floats by their non-zero values. Top-k gradients are sent in this form.
//
//   [count: 4 bytes] [the values, in order: 4 bytes each] [the number of zeros before each: LEB128, 1 to 5 bytes]
//
// Little-endian, at any alignment. Zeros of either sign become +0; all other values keep every bit, NaNs too. Positions
// ascend by construction, so none can occur twice. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/error.h"

namespace tarn::kernels {

// The minimum and maximum number of bytes for n floats. n < 2^31, here and below.
inline constexpr std::size_t kSparseBytesMin = sizeof(std::uint32_t);
constexpr std::size_t SparseBytesMax(std::size_t n) { return kSparseBytesMin + n * (sizeof(float) + 5); }

// The number of bytes that EncodeSparse writes.
std::size_t SparseBytes(std::size_t n, const float* in);

// Returns the end of the written bytes.
std::byte* EncodeSparse(std::size_t n, const float* in, std::byte* out);

// Decodes all n floats. kMalformed if `in` does not encode n floats, with the value found and the value expected; `out`
// is then undefined. Reads and writes stay within bounds for any bytes.
Status DecodeSparse(std::size_t n, std::span<const std::byte> in, float* out);

}  // namespace tarn::kernels
