#include "kernels/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "kernels/elementwise.h"

namespace tarn::kernels {
namespace {

std::uint32_t Magnitude(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

// The bucket, from the top, in which the k-th falls; takes from k what lies above it.
std::uint32_t BucketOf(std::size_t* k, const std::vector<std::uint32_t>& counts) {
  for (std::size_t bucket = counts.size(); bucket-- > 0;) {
    if (counts[bucket] >= *k) return static_cast<std::uint32_t>(bucket);
    *k -= counts[bucket];
  }
  TARN_CHECK(false, "k is at most n");
}

}  // namespace

void TopK(std::size_t n, std::size_t k, const float* in, std::uint32_t* index, float* values, TopKScratch& scratch) {
  TARN_CHECK(k <= n && n < (std::size_t{1} << 31), "at most as many as there are");
  if (k == 0) return;
  std::vector<std::uint32_t>& counts = scratch.counts_;
  std::size_t rank = k;  // among those that agree with the threshold so far
  std::ranges::fill(counts, 0);
  for (std::size_t i = 0; i < n; ++i) ++counts[Magnitude(in[i]) >> 16];
  const std::uint32_t high = BucketOf(&rank, counts);
  std::ranges::fill(counts, 0);
  for (std::size_t i = 0; i < n; ++i)
    if (const std::uint32_t m = Magnitude(in[i]); m >> 16 == high) ++counts[m & 0xffffu];
  const std::uint32_t threshold = high << 16 | BucketOf(&rank, counts);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < n && kept < k; ++i) {
    const std::uint32_t m = Magnitude(in[i]);
    if (m < threshold) continue;
    if (m == threshold) {
      if (rank == 0) continue;
      --rank;
    }
    index[kept] = static_cast<std::uint32_t>(i);
    values[kept++] = in[i];
  }
}

void RowNorms(std::uint32_t dim, std::size_t n, const float* rows, float* norms) {
  for (std::size_t i = 0; i < n; ++i, rows += dim) norms[i] = static_cast<float>(std::sqrt(SquaredNorm(dim, rows)));
}

}  // namespace tarn::kernels
