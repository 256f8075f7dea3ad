// Shows that rows of a batch wait for the newest batch in flight that has them, not for an earlier one.
#include "worker/train/unpushed_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/hash.h"

namespace tarn::worker {
namespace {

using Part = UnpushedRows::Part;
using Parts = std::map<std::uint64_t, std::vector<std::uint32_t>>;  // places by the batch for which they wait

Plan PlanOf(std::vector<Key> keys) {
  Plan plan;
  plan.keys = std::move(keys);
  return plan;
}

Parts Split(UnpushedRows* rows, std::uint64_t batch, std::uint64_t ended, std::vector<Key> keys) {
  std::vector<Part> parts;
  rows->Split(batch, ended, PlanOf(std::move(keys)), &parts);
  Parts out;
  for (Part& part : parts) EXPECT_TRUE(out.emplace(part.after, std::move(part.places)).second);
  return out;
}

TEST(UnpushedRows, RowsOfSeveralBatchesWaitForTheNewest) {
  UnpushedRows rows(1);
  EXPECT_EQ(Split(&rows, 1, 0, {1, 2, 3, 4}), (Parts{{0, {}}}));
  EXPECT_EQ(Split(&rows, 2, 0, {3, 5, 4, 6}), (Parts{{1, {0, 2}}, {0, {1, 3}}}));
  EXPECT_EQ(Split(&rows, 3, 0, {7, 1, 3, 8}), (Parts{{0, {0, 3}}, {2, {1, 2}}}));
}

TEST(UnpushedRows, ARowOfAnEndedBatchWaitsForNothing) {
  UnpushedRows rows(1);
  Split(&rows, 1, 0, {1, 2, 3, 4});
  Split(&rows, 2, 0, {3, 4, 5, 6});
  EXPECT_EQ(Split(&rows, 3, 1, {1, 2, 3, 4}), (Parts{{0, {0, 1}}, {2, {2, 3}}}));
  EXPECT_EQ(Split(&rows, 4, 3, {1, 2, 3, 4}), (Parts{{0, {}}}));
}

TEST(UnpushedRows, APartWithAllRowsNeedsNoPlaces) {
  UnpushedRows rows(1);
  Split(&rows, 1, 0, {1, 2, 3, 4});
  EXPECT_EQ(Split(&rows, 2, 0, {4, 3, 2}), (Parts{{1, {}}}));
  EXPECT_EQ(Split(&rows, 3, 0, {}), (Parts{{0, {}}}));
}

TEST(UnpushedRows, FewRowsDoNotGetTheirOwnPull) {
  UnpushedRows rows(3);
  Split(&rows, 1, 0, {1, 2, 3, 4});
  EXPECT_EQ(Split(&rows, 2, 0, {7, 1, 3, 8}), (Parts{{1, {}}}));
  EXPECT_EQ(Split(&rows, 3, 0, {9, 10, 11, 8}), (Parts{{0, {0, 1, 2}}, {2, {3}}}));
}

TEST(UnpushedRows, BatchesOfAnySizeFollowEachOther) {
  UnpushedRows rows(1);
  Split(&rows, 1, 0, {1});
  std::vector<Key> many(10'000);
  for (std::size_t i = 0; i < many.size(); ++i) many[i] = i + 1;
  const Parts parts = Split(&rows, 2, 0, many);
  ASSERT_EQ(parts.size(), 2u);  // few rows share the bit of key 1
  EXPECT_EQ(parts.at(1).front(), 0u);
  EXPECT_LT(parts.at(1).size(), many.size() / 1000);
  EXPECT_EQ(Split(&rows, 3, 1, {1}), (Parts{{2, {}}}));
}

// Compares with an exact record: no row waits too briefly, and few wait unnecessarily.
TEST(UnpushedRows, NoRowWaitsTooBriefly) {
  constexpr std::uint64_t kWindow = 3, kBatches = 200;
  constexpr std::size_t kKeys = 500;
  UnpushedRows rows(1);
  SplitMix random(7);
  std::map<Key, std::uint64_t> newest;
  std::size_t exact = 0, all = 0;
  for (std::uint64_t batch = 1; batch <= kBatches; ++batch) {
    const std::uint64_t ended = batch > kWindow ? batch - kWindow : 0;
    std::set<Key> unique;
    while (unique.size() < kKeys) unique.insert(random.Below(3000));
    const std::vector<Key> keys(unique.begin(), unique.end());
    std::vector<std::uint64_t> after(kKeys, 0);
    std::size_t placed = 0;
    for (const auto& [awaited, places] : Split(&rows, batch, ended, keys)) {
      if (places.empty()) std::ranges::fill(after, awaited);
      for (const std::uint32_t place : places) after[place] = awaited;
      placed += places.empty() ? kKeys : places.size();
    }
    ASSERT_EQ(placed, kKeys);
    for (std::size_t i = 0; i < kKeys; ++i) {
      const std::uint64_t last = std::exchange(newest[keys[i]], batch);
      const std::uint64_t expected = last > ended ? last : 0;
      ASSERT_GE(after[i], expected);
      exact += (after[i] == 0) == (expected == 0);
      ++all;
    }
  }
  EXPECT_GT(exact, all * 8 / 10);
}

}  // namespace
}  // namespace tarn::worker
