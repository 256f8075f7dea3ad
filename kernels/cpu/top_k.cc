#include "kernels/top_k.h"

#include <bit>
#include <cmath>
#include <span>

#include "core/error.h"
#include "kernels/elementwise.h"

namespace tarn::kernels {
namespace {

constexpr int kMagnitudeBits = 31;
constexpr std::size_t kFew = 1 << 14;  // below this number of values, KthMagnitude uses short digits

std::uint32_t Magnitude(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

// The bucket that contains the k-th largest value. Subtracts from *k the number of values in higher buckets.
std::uint32_t BucketOf(std::size_t* k, std::span<const std::uint32_t> counts) {
  for (std::size_t bucket = counts.size(); bucket-- > 0;) {
    if (counts[bucket] >= *k) return static_cast<std::uint32_t>(bucket);
    *k -= counts[bucket];
  }
  TARN_CHECK(false, "k is at most n");
}

// Extends `prefix`, the kKnown leading bits of the k-th magnitude, by the kDigit bits that follow.
template <int kKnown, int kDigit>
std::uint32_t NextDigit(std::span<const float> in, std::uint32_t prefix, std::size_t* k,
                        std::vector<std::uint32_t>* counts) {
  constexpr int kBelow = kMagnitudeBits - kKnown - kDigit;
  counts->assign(std::size_t{1} << kDigit, 0);
  std::uint32_t* const count = counts->data();
  for (const float x : in) {
    const std::uint32_t leading = Magnitude(x) >> kBelow;
    if (kKnown == 0 || leading >> kDigit == prefix) ++count[leading & ((1u << kDigit) - 1)];
  }
  return prefix << kDigit | BucketOf(k, *counts);
}

// The k-th largest magnitude. Sets *k to its rank among the values of this magnitude. Few values are counted by short
// digits, which need few counters.
std::uint32_t KthMagnitude(std::span<const float> in, std::size_t* k, std::vector<std::uint32_t>* counts) {
  if (in.size() >= kFew) return NextDigit<15, 16>(in, NextDigit<0, 15>(in, 0, k, counts), k, counts);
  const std::uint32_t high = NextDigit<0, 11>(in, 0, k, counts);
  return NextDigit<21, 10>(in, NextDigit<11, 10>(in, high, k, counts), k, counts);
}

}  // namespace

void TopK(std::size_t n, std::size_t k, const float* in, std::uint32_t* index, float* values, TopKScratch& scratch) {
  TARN_CHECK(k <= n && n < (std::size_t{1} << 31), "k is at most n, and n below 2^31");
  if (k == 0) return;
  std::size_t rank = k;
  const std::uint32_t threshold = KthMagnitude({in, n}, &rank, &scratch.counts_);
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
