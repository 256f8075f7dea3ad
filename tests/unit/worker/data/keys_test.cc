// Shows that features become keys without collisions: hexadecimal categories become their number; other strings,
// missing values and integers have other keys; and integers fall into the bins of the formula.
#include "worker/data/keys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <set>

#include "worker/data/bins.h"

namespace tarn::worker {
namespace {

constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

std::uint64_t LogValue(const LogBins& bins, std::int64_t v) { return BinnedValue(BinRule{}, bins, v); }

TEST(Keys, AHexCategoryIsItsNumber) {
  SplitMix random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto number = static_cast<std::uint32_t>(random.Next());
    char text[9];
    std::snprintf(text, sizeof text, "%08x", number);
    ASSERT_EQ(CategoryValue(text), number) << text;
  }
}

TEST(Keys, EveryOtherByteInAHexCategoryMakesItAString) {
  for (int place = 0; place < 8; ++place)
    for (int byte = 0; byte < 256; ++byte) {
      std::string text = "05db9164";
      text[place] = static_cast<char>(byte);
      const bool hex = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
      EXPECT_EQ((CategoryValue(text) & kHashedFlag) == 0, hex) << "byte " << byte << " at " << place;
    }
}

TEST(Keys, KindsOfCategoriesDoNotCollide) {
  const std::set<std::uint64_t> values = {
      CategoryValue(""),  CategoryValue("00000000"), CategoryValue("ffffffff"), CategoryValue("FFFFFFFF"),
      CategoryValue("0"), CategoryValue("fffffff"),  CategoryValue("AA"),       CategoryValue("AB")};
  EXPECT_EQ(values.size(), 8u);
  EXPECT_EQ(CategoryValue(""), kMissingValue);
}

TEST(Keys, AColumnChangesNoBitOfAValue) {
  EXPECT_EQ(ColumnBits(4095), 4096ULL << 48);
  EXPECT_EQ(ColumnBits(4095) & kMissingValue, 0u);
  EXPECT_NE(ColumnBits(0), 0u);
}

TEST(Keys, IntegersDoNotCollideAndFit48Bits) {
  std::set<std::uint64_t> values = {kMissingValue};
  std::size_t integers = 1;
  const auto add = [&](std::int64_t v) {
    ++integers;
    values.insert(IntegerValue(v));
    EXPECT_LT(IntegerValue(v), 1ULL << kValueBits);
  };
  for (std::int64_t v = -5000; v <= 5000; ++v) add(v);
  for (int bit = 13; bit < 63; ++bit) {
    add(1LL << bit);
    add(-(1LL << bit));
    add((1LL << bit) - 1);
  }
  add(kMin);
  add(kMax);
  EXPECT_EQ(values.size(), integers);
}

TEST(Bins, TheLogRuleIsItsFormula) {
  const LogBins bins;
  for (std::int64_t v = 3; v < 2'000'000; v += 1 + v / 1000) {
    const double log = std::log(static_cast<double>(v));
    ASSERT_EQ(bins.Bin(v), static_cast<std::uint32_t>(log * log)) << v;
  }
  for (double v = 1e7; v < 9e18; v *= 1.37) {
    const double log = std::log(std::floor(v));
    ASSERT_EQ(bins.Bin(static_cast<std::int64_t>(v)), static_cast<std::uint32_t>(log * log)) << v;
  }
  EXPECT_EQ(bins.Bin(kMax), 1906u);
}

TEST(Bins, SmallIntegersAreKeptAndCollideWithNoBin) {
  const LogBins bins;
  std::set<std::uint64_t> values = {kMissingValue};
  for (std::int64_t v = -100; v <= 2; ++v) values.insert(LogValue(bins, v));
  EXPECT_EQ(values.size(), 104u);
  for (std::int64_t v = 3; v < 10000; ++v) EXPECT_FALSE(values.contains(LogValue(bins, v))) << v;
  EXPECT_EQ(LogValue(bins, 3), LogValue(bins, 4));
  EXPECT_NE(LogValue(bins, 4), LogValue(bins, 5));
  EXPECT_NE(LogValue(bins, kMin), LogValue(bins, kMin + 1));
  EXPECT_NE(LogValue(bins, kMax), kMissingValue);
}

TEST(Bins, WidthRuleRoundsDown) {
  const LogBins bins;
  const BinRule fives{BinRule::Kind::kWidth, 5};
  const auto bin = [&](std::int64_t v) { return BinnedValue(fives, bins, v); };
  EXPECT_EQ(bin(0), bin(4));
  EXPECT_NE(bin(4), bin(5));
  EXPECT_EQ(bin(-1), bin(-5));
  EXPECT_NE(bin(-1), bin(0));
  const BinRule tiny{BinRule::Kind::kWidth, 1e-300};
  EXPECT_NE(BinnedValue(tiny, bins, kMax), BinnedValue(tiny, bins, kMin));
  const BinRule half{BinRule::Kind::kWidth, 0.5};
  EXPECT_EQ(BinnedValue(half, bins, 3), IntegerValue(6));
}

TEST(Bins, WidthsMustBePositiveAndFinite) {
  EXPECT_TRUE(Validate(BinRule{BinRule::Kind::kWidth, 0.1}));
  for (double width : {0.0, -1.0, std::numeric_limits<double>::infinity(), std::nan("")})
    EXPECT_FALSE(Validate(BinRule{BinRule::Kind::kWidth, width})) << width;
  EXPECT_TRUE(Validate(BinRule{BinRule::Kind::kIdentity, 0}));
}

}  // namespace
}  // namespace tarn::worker
