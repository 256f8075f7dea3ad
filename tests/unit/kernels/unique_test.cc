// Shows that duplicates are found for any keys, in the order of first occurrence, and that earlier uses of a scratch
// have no effect.
#include "kernels/unique.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <span>
#include <unordered_map>

#include "core/hash.h"

namespace tarn::kernels {
namespace {

void Check(const std::vector<Key>& keys, UniqueScratch& scratch) {
  std::vector<Key> expected;
  std::vector<std::uint32_t> expected_inverse;
  std::unordered_map<Key, std::uint32_t> seen;
  for (const Key key : keys) {
    const auto [at, is_new] = seen.emplace(key, std::uint32_t(expected.size()));
    if (is_new) expected.push_back(key);
    expected_inverse.push_back(at->second);
  }
  std::vector<Key> unique(keys.size(), 0xdead);
  std::vector<std::uint32_t> inverse(keys.size(), 0xdead);
  const std::size_t n = UniqueKeys(keys, unique.data(), inverse.data(), scratch);
  unique.resize(n);
  EXPECT_EQ(unique, expected);
  EXPECT_EQ(inverse, expected_inverse);

  std::vector<Key> in_place = keys;
  EXPECT_EQ(UniqueKeys(in_place, in_place.data(), inverse.data(), scratch), n);
  in_place.resize(n);
  EXPECT_EQ(in_place, expected);
  EXPECT_EQ(inverse, expected_inverse);
}

std::vector<Key> RandomKeys(std::size_t n, std::uint64_t distinct, SplitMix& random) {
  std::vector<Key> keys(n);
  for (Key& key : keys) key = Mix64(random.Below(distinct));
  return keys;
}

TEST(UniqueTest, AnyMixOfKeysWithOneScratch) {
  UniqueScratch scratch;
  SplitMix random(1);
  for (const std::size_t n : {0, 1, 2, 15, 16, 17, 31, 33, 1000, 100000, 5, 0})
    for (const std::uint64_t distinct : {std::uint64_t{1}, std::uint64_t{7}, std::uint64_t{1000}, ~std::uint64_t{0}})
      Check(RandomKeys(n, distinct, random), scratch);
}

TEST(UniqueTest, KeysThatShareAllTheirLowHashBits) {
  std::vector<Key> keys;
  keys.reserve(2000);
  for (std::uint64_t i = 0; i < 2000; ++i) keys.push_back(Unmix64((i % 700) << 40));
  UniqueScratch scratch;
  Check(keys, scratch);
}

TEST(UniqueTest, ExtremeKeys) {
  UniqueScratch scratch;
  Check({0, ~Key{0}, 0, 1, ~Key{0}, Key{1} << 63}, scratch);
}

// Keys that are added in parts, in place, give the same as all at once, and nothing behind them is written.
TEST(UniqueTest, KeysCanBeAddedInParts) {
  SplitMix random(3);
  for (const std::uint64_t distinct : {std::uint64_t{5}, std::uint64_t{3000}, ~std::uint64_t{0}}) {
    const std::vector<Key> keys = RandomKeys(20'000, distinct, random);
    UniqueScratch scratch;
    std::vector<Key> expected(keys.size());
    std::vector<std::uint32_t> expected_inverse(keys.size());
    expected.resize(UniqueKeys(keys, expected.data(), expected_inverse.data(), scratch));
    scratch.Clear(10);
    std::vector<Key> unique;
    std::vector<std::uint32_t> inverse(keys.size());
    for (std::size_t begin = 0, count = 0; begin < keys.size(); begin += count) {
      count = std::min<std::size_t>(keys.size() - begin, random.Below(4000));
      const std::span<const Key> part = std::span(keys).subspan(begin, count);
      const std::size_t n = unique.size();
      unique.insert(unique.end(), part.begin(), part.end());
      unique.push_back(0xdead);
      const std::size_t now =
          AddUniqueKeys(std::span(unique).subspan(n, count), n, unique.data(), inverse.data() + begin, scratch);
      ASSERT_EQ(unique.back(), 0xdead);
      unique.resize(now);
    }
    EXPECT_EQ(unique, expected);
    EXPECT_EQ(inverse, expected_inverse);
  }
}

TEST(UniqueTest, OrderDoesNotDependOnTheScratch) {
  SplitMix random(2);
  const std::vector<Key> keys = RandomKeys(5000, 900, random);
  UniqueScratch cold, warm;
  Check(RandomKeys(50000, ~std::uint64_t{0}, random), warm);
  Check(keys, cold);
  Check(keys, warm);
}

}  // namespace
}  // namespace tarn::kernels
