// Histogram: exact counts, mean, maximum and percentiles, overflow, merging, and the sparse form with every way in
// which it can be malformed.
#include "core/histogram.h"

#include <gtest/gtest.h>

#include "core/json.h"

namespace tarn {
namespace {

TEST(Histogram, EmptyIsZero) {
  const Histogram empty;
  EXPECT_EQ(empty.count(), 0u);
  EXPECT_EQ(empty.mean(), 0);
  EXPECT_EQ(empty.max(), 0u);
  EXPECT_EQ(empty.Percentile(0.5), 0u);
  EXPECT_EQ(*Histogram::FromWords(empty.ToWords()), empty);
}

TEST(Histogram, CountsMeanMaxPercentiles) {
  Histogram histogram;
  histogram.Add(0, 50);
  histogram.Add(1, 40);
  histogram.Add(3, 9);
  histogram.Add(4);
  histogram.Add(9, 0);
  EXPECT_EQ(histogram.count(), 100u);
  EXPECT_DOUBLE_EQ(histogram.mean(), 0.71);
  EXPECT_EQ(histogram.max(), 4u);
  EXPECT_EQ(histogram.CountOf(3), 9u);
  EXPECT_EQ(histogram.CountOf(2), 0u);
  EXPECT_EQ(histogram.CountOf(5000), 0u);
  EXPECT_EQ(histogram.Percentile(0), 0u);
  EXPECT_EQ(histogram.Percentile(0.5), 0u);
  EXPECT_EQ(histogram.Percentile(0.51), 1u);
  EXPECT_EQ(histogram.Percentile(0.99), 3u);
  EXPECT_EQ(histogram.Percentile(1), 4u);
  EXPECT_EQ(histogram.counts().size(), 5u);
}

TEST(Histogram, LastBucketAndOneBeyond) {
  Histogram histogram;
  histogram.Add(1023);
  EXPECT_EQ(histogram.overflow(), 0u);
  histogram.Add(1024);
  histogram.Add(1'000'000);
  EXPECT_EQ(histogram.overflow(), 2u);
  EXPECT_EQ(histogram.max(), 1'000'000u);
  EXPECT_EQ(histogram.sum(), 1'002'047u);
  EXPECT_EQ(histogram.Percentile(0.3), 1023u);
  EXPECT_EQ(histogram.Percentile(0.9), 1'000'000u);
}

TEST(Histogram, MergeIsAddition) {
  Histogram a, b, both;
  for (std::uint64_t v : {0u, 0u, 7u, 2000u}) a.Add(v), both.Add(v);
  for (std::uint64_t v : {1u, 900u, 3000u}) b.Add(v), both.Add(v);
  Histogram ab = a, ba = b;
  ab.Merge(b);
  ba.Merge(a);
  EXPECT_EQ(ab, both);
  EXPECT_EQ(ba, both);
}

TEST(Histogram, SparseForm) {
  Histogram histogram;
  histogram.Add(2, 5);
  histogram.Add(1023, 1);
  histogram.Add(5000, 2);
  const auto words = histogram.ToWords();
  EXPECT_EQ(words, (std::vector<std::uint64_t>{11033, 5000, 2, 2, 5, 1023, 1}));
  EXPECT_EQ(*Histogram::FromWords(words), histogram);
}

TEST(Histogram, MalformedWordsAreRefused) {
  constexpr std::uint64_t kHuge = ~std::uint64_t{0};
  const std::vector<std::vector<std::uint64_t>> cases = {
      {},
      {0, 0},
      {0, 0, 0, 1},              // half a pair
      {1, 1, 0, 1, 0},           // a count of 0
      {1024, 1024, 0, 1024, 1},  // a value past the last bucket
      {3, 2, 0, 2, 1, 1, 1},     // falling values
      {2, 1, 0, 1, 1, 1, 1},     // twice the same
      {5, 1, 0, 1, 1},           // sum too large
      {1, 2, 0, 1, 1},           // maximum without a value
      {1, 1, 1, 1, 1},           // overflow with a small maximum
      {0, 2000, 1, 1, 1},        // sum below that of the buckets
      {1, 1, 0, 1, kHuge},       // counts that would wrap
      {5000, 5000, kHuge},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto out = Histogram::FromWords(cases[i]);
    ASSERT_FALSE(out) << i;
    EXPECT_EQ(out.error().code, ErrorCode::kMalformed);
  }
  EXPECT_FALSE(Histogram::FromWords(std::vector<std::uint64_t>(3 + 2 * Histogram::kBuckets + 2)));
}

TEST(Histogram, Json) {
  Histogram histogram;
  histogram.Add(0, 3);
  histogram.Add(4);
  JsonWriter json;
  histogram.WriteJson(json);
  EXPECT_EQ(json.text(), R"({"count":4,"mean":1,"p50":0,"p99":4,"max":4,"counts":{"0":3,"4":1},"overflow":0})");
}

}  // namespace
}  // namespace tarn
