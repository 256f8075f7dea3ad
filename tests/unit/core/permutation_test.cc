// Shows that Permutation is a bijection of 0..n-1 for every size, that it depends on the seed, and that it separates
// neighbours.

#include "core/permutation.h"

#include <gtest/gtest.h>

#include <vector>

namespace tarn {
namespace {

TEST(Permutation, IsABijection) {
  for (std::uint64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 64, 65, 1000, 4095, 4096, 4097, 100'003}) {
    const Permutation order(n, 7 * n);
    std::vector<bool> seen(n, false);
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t to = order(i);
      ASSERT_LT(to, n);
      EXPECT_FALSE(seen[to]) << n << ": twice " << to;
      seen[to] = true;
    }
  }
}

TEST(Permutation, DependsOnTheSeedAndMixes) {
  const Permutation a(10'000, 1), b(10'000, 2);
  std::uint64_t same = 0, close = 0, below = 0;
  for (std::uint64_t i = 0; i + 1 < 10'000; ++i) {
    same += a(i) == b(i);
    const std::int64_t step = static_cast<std::int64_t>(a(i + 1)) - static_cast<std::int64_t>(a(i));
    close += step >= -10 && step <= 10;
    below += i < 5'000 && a(i) < 5'000;
  }
  EXPECT_LT(same, 20u);
  EXPECT_LT(close, 100u);
  EXPECT_NEAR(double(below), 2'500, 200);
}

}  // namespace
}  // namespace tarn
