// Compares the figures of core/quality.h with their definitions, and shows that merging counts is exact in any
// grouping.
#include "core/quality.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/hash.h"

namespace tarn {
namespace {

struct Row {
  float logit;
  bool positive;
};

double LossOf(const Row& row) {
  const double p = 1 / (1 + std::exp(-double{row.logit}));
  return -std::log(row.positive ? p : 1 - p);
}

std::vector<Row> SomeRows(std::size_t count) {
  SplitMix random(3);
  std::vector<Row> rows;
  for (std::size_t i = 0; i < count; ++i) {
    const double logit = 8 * random.Unit() - 4;
    rows.push_back({static_cast<float>(logit), random.Chance(1 / (1 + std::exp(-logit)))});
  }
  return rows;
}

double PairwiseAuc(const std::vector<Row>& rows) {
  double won = 0, pairs = 0;
  for (const Row& a : rows)
    for (const Row& b : rows) {
      if (!a.positive || b.positive) continue;
      ++pairs;
      won += a.logit > b.logit ? 1 : a.logit == b.logit ? 0.5 : 0;
    }
  return won / pairs;
}

TEST(Quality, AgreesWithDefinitions) {
  const auto rows = SomeRows(2000);
  Quality quality;
  double loss = 0, correct = 0, positives = 0;
  for (const Row& row : rows) {
    quality.AddBinary(row.logit, row.positive);
    loss += LossOf(row);
    correct += (row.logit > 0) == row.positive ? 1 : 0;
    positives += row.positive ? 1 : 0;
  }
  quality.AddLoss(loss / 4);
  quality.AddLoss(3 * loss / 4);
  const double n = static_cast<double>(rows.size()), share = positives / n;
  EXPECT_NEAR(quality.LogLoss(), loss / n, 1e-12);
  EXPECT_DOUBLE_EQ(quality.Accuracy(), correct / n);
  EXPECT_NEAR(quality.Auc(), PairwiseAuc(rows), 1e-4);
  const double entropy = -(share * std::log(share) + (1 - share) * std::log(1 - share));
  EXPECT_NEAR(quality.NormalizedEntropy(), loss / n / entropy, 1e-9);
}

TEST(Quality, MergingIsExact) {
  const auto rows = SomeRows(3000);
  Quality whole, parts[3], merged;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (Quality* quality : {&whole, &parts[i % 3]}) {
      quality->AddBinary(rows[i].logit, rows[i].positive);
      quality->AddLoss(LossOf(rows[i]));
    }
  for (int i : {2, 0, 1}) merged.Merge(parts[i]);
  EXPECT_EQ(merged.buckets, whole.buckets);
  EXPECT_EQ(merged.Auc(), whole.Auc());
  EXPECT_EQ(merged.Accuracy(), whole.Accuracy());
  EXPECT_NEAR(merged.LogLoss(), whole.LogLoss(), 1e-12);
}

TEST(Quality, AFullBucketSaturates) {
  Quality quality, more;
  quality.AddBinary(-1, false);
  quality.AddBinary(1, true);
  for (auto& [index, bucket] : quality.buckets)
    (bucket.positives == 0 ? bucket.negatives : bucket.positives) = UINT32_MAX - 1;
  more.AddBinary(-1, false);
  more.AddBinary(1, true);
  for (int i = 0; i < 3; ++i) quality.Merge(more);
  quality.AddBinary(-1, false);
  quality.AddBinary(1, true);
  EXPECT_EQ(quality.Auc(), 1);
  for (const auto& [index, bucket] : quality.buckets) EXPECT_EQ(bucket.positives + bucket.negatives, UINT32_MAX);
}

TEST(Quality, ATallyGivesTheSameQuality) {
  QualityTally tally;
  for (std::size_t count : {3000, 0, 500}) {  // a taken tally leaves no trace in the next
    Quality plain;
    for (const Row& row : SomeRows(count)) {
      plain.AddBinary(row.logit, row.positive);
      tally.AddBinary(row.logit, row.positive);
    }
    plain.AddLoss(0.75);
    tally.AddLoss(0.75);
    plain.AddClass(0.5, true);
    tally.AddClass(0.5, true);
    const Quality taken = tally.Take();
    EXPECT_EQ(taken.buckets, plain.buckets);
    EXPECT_EQ(taken.rows, plain.rows);
    EXPECT_EQ(taken.positives, plain.positives);
    EXPECT_EQ(taken.correct, plain.correct);
    EXPECT_EQ(taken.loss_sum, plain.loss_sum);
  }
}

TEST(Quality, LogitsBeyondTheRangeCountAtItsEnds) {
  Quality quality;
  for (float logit : {-1e30f, -200.f, -16.f, 16.f, 200.f, 1e30f}) quality.AddBinary(logit, logit > 0);
  EXPECT_EQ(quality.Auc(), 1);
  EXPECT_EQ(quality.buckets.rbegin()->first, Quality::kBuckets - 1);
  EXPECT_EQ(quality.buckets.begin()->first, 0u);
}

TEST(Quality, DivergenceShowsInTheLossOnly) {
  Quality quality;
  quality.AddBinary(std::numeric_limits<float>::quiet_NaN(), true);
  EXPECT_EQ(quality.Auc(), 0.5);
  quality.AddLoss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(std::isnan(quality.LogLoss()));
  EXPECT_EQ(quality.rows, 1u);
}

TEST(Quality, EmptyAndOneSided) {
  Quality quality;
  EXPECT_EQ(quality.Auc(), 0.5);
  EXPECT_EQ(quality.LogLoss(), 0);
  EXPECT_EQ(quality.NormalizedEntropy(), 1);
  quality.AddBinary(1, true);
  EXPECT_EQ(quality.Auc(), 0.5);
  EXPECT_EQ(quality.NormalizedEntropy(), 1);
}

TEST(Quality, Classes) {
  Quality quality;
  quality.AddClass(0.25, true);
  quality.AddClass(0.75, false);
  EXPECT_EQ(quality.LogLoss(), 0.5);
  EXPECT_EQ(quality.Accuracy(), 0.5);
}

}  // namespace
}  // namespace tarn
