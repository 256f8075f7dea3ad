// Arrays of floats of which most are zero, as those that are not: how the largest values of a gradient travel.
//
//   [count: 4 bytes] [the values, in order: 4 bytes each] [how many zeros stand before each: LEB128, 1 to 5 bytes]
//
// Little-endian, at any alignment. Zeros of either sign become +0; of the rest, NaN too, every bit arrives. Positions
// ascend by construction: no bytes tell of one twice. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/error.h"

namespace tarn::kernels {

// The fewest and the most bytes that stand for n floats. n < 2^31, here and below.
inline constexpr std::size_t kSparseBytesMin = sizeof(std::uint32_t);
constexpr std::size_t SparseBytesMax(std::size_t n) { return kSparseBytesMin + n * (sizeof(float) + 5); }

// How many bytes EncodeSparse writes.
std::size_t SparseBytes(std::size_t n, const float* in);

// Returns the end of what it has written.
std::byte* EncodeSparse(std::size_t n, const float* in, std::byte* out);

// All n floats. kMalformed, naming what was found and what was expected, if `in` does not stand for n floats: then
// `out` may hold anything. Reads and writes within bounds whatever the bytes are.
Status DecodeSparse(std::size_t n, std::span<const std::byte> in, float* out);

}  // namespace tarn::kernels
