// Shows that the quality that training reports equals that of the kernels: counts by row, and the sum of the losses,
// which is the step's if the step knows it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/hash.h"
#include "kernels/loss.h"
#include "worker/models/model.h"

namespace tarn::worker {
namespace {

constexpr std::size_t kRows = 1000;

struct Scored {
  std::vector<float> logits, labels;
};

Scored SomeRows() {
  SplitMix random(1);
  Scored rows;
  for (std::size_t i = 0; i < kRows; ++i) {
    rows.logits.push_back(float(random.Unit() * 8 - 4));
    rows.labels.push_back(random.Chance(0.3) ? 1.0f : 0.0f);
  }
  return rows;
}

Quality Tallied(const Predictions& predictions, const std::vector<float>& labels) {
  QualityTally tally;
  Tally(predictions, labels, &tally);
  return tally.Take();
}

TEST(TallyTest, TheLossOfTwoClassesEqualsTheKernels) {
  const Scored rows = SomeRows();
  Compute compute;
  std::vector<float> grad(kRows);
  const auto loss = compute.LogisticLoss(kRows, rows.logits.data(), rows.labels.data(), 1.0f, grad.data());
  const double expected = kernels::LogisticLoss(kRows, rows.logits.data(), rows.labels.data(), 1.0f, nullptr);
  ASSERT_TRUE(loss);
  EXPECT_EQ(*loss, expected);
  for (const std::optional<double>& known : {loss, std::optional<double>()}) {
    const Quality quality = Tallied({.logits = rows.logits.data(), .loss = known}, rows.labels);
    EXPECT_EQ(quality.loss_sum, expected);
    EXPECT_EQ(quality.rows, kRows);
    std::uint64_t positives = 0, correct = 0;
    for (std::size_t i = 0; i < kRows; ++i) {
      positives += rows.labels[i] == 1.0f;
      correct += (rows.logits[i] > 0) == (rows.labels[i] == 1.0f);
    }
    EXPECT_EQ(quality.positives, positives);
    EXPECT_EQ(quality.correct, correct);
  }
}

TEST(TallyTest, AKnownLossIsNotComputedAgain) {
  const Scored rows = SomeRows();
  EXPECT_EQ(Tallied({.logits = rows.logits.data(), .loss = 0.25}, rows.labels).loss_sum, 0.25);
}

TEST(TallyTest, DivergenceIsReported) {
  Scored rows = SomeRows();
  rows.logits[kRows / 2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Tallied({.logits = rows.logits.data()}, rows.labels).loss_sum));
}

TEST(TallyTest, LossesOfManyClassesAreSummed) {
  const std::vector<double> losses = {0.5, 0.25, 4};
  const std::vector<std::uint32_t> correct = {1, 0, 1};
  const Quality quality = Tallied({.losses = losses.data(), .correct = correct.data()}, {2, 0, 9});
  EXPECT_EQ(quality.rows, 3u);
  EXPECT_EQ(quality.correct, 2u);
  EXPECT_EQ(quality.loss_sum, 4.75);
}

}  // namespace
}  // namespace tarn::worker
