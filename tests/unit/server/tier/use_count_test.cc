// Shows that counts of uses are exact while low, then logarithmic and capped; that aging halves them; and that the
// least used items are selected.
#include "server/tier/use_count.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

TEST(UseCountTest, IsExactThenLogarithmicThenCapped) {
  SplitMix random(1);
  std::uint32_t count = 0;
  for (std::uint32_t use = 1; use <= kExactUses; ++use) EXPECT_EQ(count = AfterUse(count, random), use);
  std::uint64_t uses = kExactUses;
  for (; count < kUseCountMax; ++uses) count = AfterUse(count, random);
  EXPECT_GT(uses, 200u);
  EXPECT_LT(uses, 10'000u);
  EXPECT_EQ(AfterUse(kUseCountMax, random), kUseCountMax);
}

TEST(UseCountTest, AgingHalves) {
  SplitMix random(1);
  EXPECT_EQ(AfterAging(0, random), 0u);
  EXPECT_EQ(AfterAging(4, random), 2u);
  EXPECT_EQ(AfterAging(kUseCountMax, random), kUseCountMax - 1);
  int ones = 0;
  for (int i = 0; i < 1000; ++i) ones += AfterAging(1, random) == 1 ? 1 : 0;
  EXPECT_NEAR(ones, 500, 100);
}

TEST(UseCountTest, AgesEachCountAfterAFixedNumberOfUsesPerRow) {
  Aging aging;
  std::uint64_t aged = 0;
  for (int i = 0; i < 1000; ++i) aged += aging.Due(64, 5000, 100);
  EXPECT_EQ(aged, 1000 * 64 * 5000 / (kUsesPerAging * 100));
  EXPECT_EQ(Aging().Due(1'000'000, 10, 1), 10u);  // at most the number of rows
}

TEST(UseCountTest, TheLeastUsedArePicked) {
  SplitMix random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::uint32_t> items;
    std::vector<std::uint8_t> counts;
    for (std::uint32_t i = 0; i < 100; ++i) {
      items.push_back(i);
      counts.push_back(static_cast<std::uint8_t>(random.Below(kUseCountMax + 1)));
    }
    const std::size_t wanted = 1 + random.Below(110);
    KeepLeastUsed(&items, counts, wanted);
    ASSERT_EQ(items.size(), std::min<std::size_t>(wanted, 100));
    std::vector<bool> kept(100, false);
    std::uint8_t highest = 0;
    for (std::uint32_t item : items) {
      EXPECT_FALSE(kept[item]);
      kept[item] = true;
      highest = std::max(highest, counts[item]);
    }
    for (std::size_t i = 0; i < 100; ++i) EXPECT_TRUE(kept[i] || counts[i] >= highest);
  }
}

}  // namespace
}  // namespace tarn::server
