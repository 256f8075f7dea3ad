#include "kernels/low_rank.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/initialize.h"

namespace tarn::kernels {
namespace {

// If orthogonalization reduces a column's norm to less than this share, the rest is rounding error.
constexpr double kRounding = 1e-5;

double ColumnDot(std::size_t n, std::uint32_t rank, const float* left, std::uint32_t a, std::uint32_t b) {
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += static_cast<double>(left[i * rank + a]) * left[i * rank + b];
  return sum;
}

// Modified Gram-Schmidt, applied twice, because after one pass rounding errors leave the column not quite orthogonal.
// False: the column is zero, not finite, or depends linearly on earlier ones. It is then set to zero.
bool Orthonormalize(std::size_t n, std::uint32_t rank, std::uint32_t c, float* left) {
  const double before = std::sqrt(ColumnDot(n, rank, left, c, c));
  for (std::uint32_t step = 0; step < 2 * c; ++step) {
    const std::uint32_t earlier = step % c;
    const double share = ColumnDot(n, rank, left, earlier, c);
    for (std::size_t i = 0; i < n; ++i) left[i * rank + c] -= static_cast<float>(share * left[i * rank + earlier]);
  }
  const double norm = std::sqrt(ColumnDot(n, rank, left, c, c));
  const bool has_content = norm > kRounding * before;  // false if both norms are 0, or one is not finite
  for (std::size_t i = 0; i < n; ++i)
    left[i * rank + c] = has_content ? static_cast<float>(left[i * rank + c] / norm) : 0.0f;
  return has_content;
}

void AddScaled(std::uint32_t n, float factor, const float* in, float* out) {
  for (std::uint32_t i = 0; i < n; ++i) out[i] += factor * in[i];
}

Status Malformed(const std::string& what) { return Fail(ErrorCode::kMalformed, "factors: " + what); }

}  // namespace

void StartLowRank(std::uint32_t dim, std::uint32_t rank, std::uint64_t seed, float* right) {
  const InitializerSpec normal{InitializerKind::kNormal, 0, 1};
  for (std::uint32_t c = 0; c < rank; ++c) InitializeRow(normal, seed, c, {right + std::size_t{c} * dim, dim});
}

void FactorLowRank(std::size_t n, std::uint32_t dim, std::uint32_t rank, const float* matrix, float* left,
                   float* right) {
  for (std::size_t i = 0; i < n; ++i)
    for (std::uint32_t c = 0; c < rank; ++c)
      left[i * rank + c] = static_cast<float>(Dot(dim, matrix + i * dim, right + std::size_t{c} * dim));
  for (std::uint32_t c = 0; c < rank; ++c) {
    if (!Orthonormalize(n, rank, c, left)) continue;
    float* column = right + std::size_t{c} * dim;
    Fill(dim, 0.0f, column);
    for (std::size_t i = 0; i < n; ++i) AddScaled(dim, left[i * rank + c], matrix + i * dim, column);
  }
}

void MultiplyLowRank(std::size_t n, std::uint32_t dim, std::uint32_t rank, const float* left, const float* right,
                     float* out) {
  for (std::size_t i = 0; i < n; ++i) {
    float* row = out + i * dim;
    Fill(dim, 0.0f, row);
    for (std::uint32_t c = 0; c < rank; ++c) AddScaled(dim, left[i * rank + c], right + std::size_t{c} * dim, row);
  }
}

std::byte* EncodeRight(std::uint32_t dim, std::uint32_t rank, const float* right, std::byte* out) {
  std::memcpy(out, &rank, sizeof(rank));
  const std::size_t bytes = std::size_t{dim} * rank * sizeof(float);
  std::memcpy(out + sizeof(rank), right, bytes);
  return out + sizeof(rank) + bytes;
}

Status DecodeLowRank(std::size_t n, std::uint32_t dim, std::uint32_t rank_max, std::span<const std::byte> in,
                     float* out) {
  std::uint32_t rank = 0;
  if (in.size() < sizeof(rank)) return Malformed(fmt::format("{} bytes, expected at least 4", in.size()));
  std::memcpy(&rank, in.data(), sizeof(rank));
  if (rank < 1 || rank > rank_max) return Malformed(fmt::format("rank {}, expected 1 to {}", rank, rank_max));
  if (in.size() != LowRankBytes(n, dim, rank))
    return Malformed(fmt::format("{} bytes, expected {} for {} x {} values of rank {}", in.size(),
                                 LowRankBytes(n, dim, rank), n, dim, rank));
  std::vector<float> factors((n + dim) * rank);
  std::memcpy(factors.data(), in.data() + sizeof(rank), factors.size() * sizeof(float));
  MultiplyLowRank(n, dim, rank, factors.data() + std::size_t{dim} * rank, factors.data(), out);
  return {};
}

}  // namespace tarn::kernels
