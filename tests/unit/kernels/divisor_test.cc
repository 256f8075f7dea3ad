// Shows that kernels/cuda/divisor.h divides like the processor, at every edge of its range.
#include "kernels/cuda/divisor.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/hash.h"

namespace tarn::kernels::cuda {
namespace {

constexpr std::uint32_t kEnd = std::uint32_t{1} << 31;

void Check(std::uint32_t by, SplitMix& random) {
  const Divisor divisor(by);
  ASSERT_EQ(divisor.by(), by);
  std::vector<std::uint32_t> numbers = {0, 1, by - 1, by, by + 1, kEnd - 1, kEnd - 2};
  for (int i = 0; i < 100; ++i) {
    const auto multiple = std::uint32_t(by * random.Below(kEnd / by + 1));
    numbers.insert(numbers.end(), {std::uint32_t(random.Below(kEnd)), multiple, multiple - 1});
  }
  for (const std::uint32_t n : numbers) {
    if (n < kEnd) {
      ASSERT_EQ(divisor.Quotient(n), n / by) << n << " / " << by;
    }
  }
}

TEST(DivisorTest, DividesLikeTheProcessor) {
  SplitMix random(1);
  for (std::uint32_t by = 1; by < 2000; ++by) Check(by, random);
  for (unsigned shift = 1; shift < 31; ++shift)
    for (const std::uint32_t off : {0u, 1u})
      Check((std::uint32_t{1} << shift) - off, random), Check((1u << shift) + 1, random);
  for (int i = 0; i < 2000; ++i) Check(std::uint32_t(random.Below(kEnd) + 1), random);
  Check(kEnd, random);
}

}  // namespace
}  // namespace tarn::kernels::cuda
