// Shows that Unmix64 inverts Mix64, that hashes of similar inputs differ and are the same in every build, and that the
// words of a SplitMix are evenly distributed.
#include "core/hash.h"

#include <gtest/gtest.h>

#include <bit>
#include <set>
#include <string>
#include <vector>

namespace tarn {
namespace {

TEST(Hash, UnmixInvertsMix) {
  SplitMix words(1);
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t word = words.Next();
    ASSERT_EQ(Unmix64(Mix64(word)), word);
    ASSERT_EQ(Mix64(Unmix64(word)), word);
  }
  for (int bit = 0; bit < 64; ++bit) {
    const std::uint64_t word = std::uint64_t{1} << bit;
    ASSERT_EQ(Unmix64(Mix64(word)), word);
    ASSERT_EQ(Unmix64(Mix64(~word)), ~word);
  }
  EXPECT_EQ(Mix64(0), 0u);
}

TEST(Hash, SplitMixGivesThePublishedWords) {
  SplitMix words(1234567);  // the example of the reference implementation
  EXPECT_EQ(words.Next(), 6457827717110365317u);
  EXPECT_EQ(words.Next(), 3203168211198807973u);
  EXPECT_EQ(words.Next(), 9817491932198370423u);
}

TEST(Hash, OneInputBitChangesHalfOfTheOutput) {
  SplitMix words(2);
  double changed = 0;
  constexpr int kWords = 200;
  for (int i = 0; i < kWords; ++i) {
    const std::uint64_t word = words.Next();
    for (int bit = 0; bit < 64; ++bit) changed += std::popcount(Mix64(word) ^ Mix64(word ^ (std::uint64_t{1} << bit)));
  }
  EXPECT_NEAR(changed / (64.0 * kWords), 32, 0.5);
}

TEST(Hash, CombineDependsOnOrder) {
  EXPECT_NE(HashCombine(1, 2), HashCombine(2, 1));
  EXPECT_NE(HashCombine(0, 0), HashCombine(HashCombine(0, 0), 0));
}

TEST(Hash, HashBytesDependsOnLengthContentAndSeed) {
  std::set<std::uint64_t> seen;
  std::size_t count = 0;
  for (std::size_t length = 0; length < 40; ++length) {
    std::string text(length, '\0');
    for (std::uint64_t seed : {0u, 1u}) ++count, seen.insert(HashBytes(text, seed));
    for (std::size_t i = 0; i < length; ++i) {
      text[i] = 'x';
      ++count;
      seen.insert(HashBytes(text));
      text[i] = '\0';
    }
  }
  EXPECT_EQ(seen.size(), count);
}

TEST(Hash, HashBytesIsStableOverBuilds) {
  static_assert(HashBytes("linear", 1) == HashBytes(std::string_view("linear"), 1));
  const std::uint64_t expected = HashCombine(Mix64(6 * 0x9e3779b97f4a7c15ULL), 0x7261656e696cULL);
  EXPECT_EQ(HashBytes("linear"), expected);  // "linear" as little-endian bytes
}

TEST(Hash, StreamIsEven) {
  SplitMix words(3);
  std::vector<int> counts(10);
  double sum = 0;
  for (int i = 0; i < 100000; ++i) {
    ++counts[words.Below(10)];
    const double unit = words.Unit();
    ASSERT_GE(unit, 0);
    ASSERT_LT(unit, 1);
    sum += unit;
  }
  for (int count : counts) EXPECT_NEAR(count, 10000, 500);
  EXPECT_NEAR(sum / 100000, 0.5, 0.01);
  EXPECT_EQ(words.Below(1), 0u);
  EXPECT_FALSE(words.Chance(0));
  EXPECT_TRUE(words.Chance(1));
}

}  // namespace
}  // namespace tarn
