// A matrix of gradients as the product of two thin ones: PowerSGD (Vogels, Karimireddy, Jaggi, "PowerSGD: practical
// low-rank gradient compression for distributed optimization", NeurIPS 2019, algorithm 1, for each worker separately).
//
// One step of subspace iteration, which starts from the factor Q of the previous step: P = orthonormal(M Q), Q = M' P;
// then M is about P Q'. M (n x dim) and P (n x rank), "left", are stored by row, Q (dim x rank), "right", by column.
// Sums are in a fixed order: the same bits on every x86-64. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/error.h"

namespace tarn::kernels {

// Whether the factors of n x dim values, with a header, are smaller than the values.
constexpr bool LowRankPays(std::size_t n, std::uint32_t dim, std::uint32_t rank) {
  return sizeof(std::uint32_t) + (n + dim) * rank * sizeof(float) < n * dim * sizeof(float);
}

// Sets `right` to the factor with which the first step starts: standard normal values, a function of `seed`.
void StartLowRank(std::uint32_t dim, std::uint32_t rank, std::uint64_t seed, float* right);

// Sets `left` and replaces `right`. If the matrix has a lower rank, the surplus columns of `left` are zero, and those
// of `right` keep their values for the next step. The matrix must be finite; if a factor is not finite, its
// computation has overflowed.
void FactorLowRank(std::size_t n, std::uint32_t dim, std::uint32_t rank, const float* matrix, float* left,
                   float* right);

// out (n x dim) = left * right'.
void MultiplyLowRank(std::size_t n, std::uint32_t dim, std::uint32_t rank, const float* left, const float* right,
                     float* out);

// A message: [rank: 4 bytes] [right] [left], little-endian floats at any alignment.
constexpr std::size_t LowRankBytes(std::size_t n, std::uint32_t dim, std::uint32_t rank) {
  return sizeof(std::uint32_t) + (n + dim) * std::size_t{rank} * sizeof(float);
}
// Writes the header and `right`; the caller writes `left` behind them. Returns the end of what was written.
std::byte* EncodeRight(std::uint32_t dim, std::uint32_t rank, const float* right, std::byte* out);
// Decodes n x dim values. kMalformed if `in` does not encode such a matrix, of at most rank_max; `out` is then
// undefined. Reads and writes stay within bounds for any bytes.
Status DecodeLowRank(std::size_t n, std::uint32_t dim, std::uint32_t rank_max, std::span<const std::byte> in,
                     float* out);

}  // namespace tarn::kernels
