// Shows that draws have the means of their distributions and are determined by seed and rank, and that stragglers and
// pauses take the time of the job file.
#include "worker/train/delays.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/draw.h"

namespace tarn::worker {
namespace {

using Kind = Distribution::Kind;
using kernels::Draw;
using kernels::kDrawMax;

double MeanOfDraws(const Distribution& distribution) {
  SplitMix rng(3);
  double sum = 0;
  constexpr int kDraws = 200'000;
  for (int i = 0; i < kDraws; ++i) {
    const double draw = Draw(distribution, &rng);
    EXPECT_GE(draw, 0);
    sum += draw;
  }
  return sum / kDraws;
}

TEST(DelaysTest, DrawsHaveTheMeansOfTheirDistributions) {
  EXPECT_EQ(MeanOfDraws({Kind::kConstant, 2}), 2);
  EXPECT_NEAR(MeanOfDraws({Kind::kUniform, 1, 3}), 2, 0.01);
  EXPECT_NEAR(MeanOfDraws({Kind::kExponential, 2}), 2, 0.03);
  EXPECT_NEAR(MeanOfDraws({Kind::kLognormal, 2, 0.5}), 2 * std::exp(0.125), 0.03);
  EXPECT_NEAR(MeanOfDraws({Kind::kPareto, 1, 3}), 1.5, 0.03);
}

TEST(DelaysTest, DrawsAreBounded) {
  SplitMix rng(1);
  for (int i = 0; i < 100; ++i) EXPECT_LE(Draw({Kind::kLognormal, 1e6, 1e6}, &rng), kDrawMax);
  const Job job = {.delays = {.batch = {Kind::kConstant, 1e6}, .worker = {Kind::kConstant, 1e6}}};
  EXPECT_LE(BatchDelays(job, 0).Next(1000), TimeUs(kDrawMax * 1e6));
}

TEST(DelaysTest, ADrawIsAtLeastTheLowOfPareto) {
  SplitMix rng(1);
  for (int i = 0; i < 1000; ++i) EXPECT_GE(Draw({Kind::kPareto, 0.5, 1.1}, &rng), 0.5);
}

Job JobOf(const DelaysSection& delays) {
  Job job;
  job.fleet.workers = 4;
  job.delays = delays;
  return job;
}

TEST(DelaysTest, WithoutDelaysNoTimeIsAdded) {
  BatchDelays delays(JobOf({}), 0);
  EXPECT_EQ(delays.Next(1), 0);
}

TEST(DelaysTest, DrawsRepeatForARankAndDifferBetweenRanks) {
  const Job job = JobOf({.batch = {Kind::kExponential, 0.01}});
  BatchDelays one(job, 1), again(job, 1), other(job, 2);
  bool differs = false;
  for (int i = 0; i < 10; ++i) {
    const TimeUs delay = one.Next(1);
    EXPECT_EQ(delay, again.Next(1));
    differs |= delay != other.Next(1);
  }
  EXPECT_TRUE(differs);
}

TEST(DelaysTest, TheLastRanksAreTheStragglers) {
  const Job job = JobOf({.batch = {Kind::kConstant, 0.01}, .stragglers = 1, .straggler_factor = 5});
  EXPECT_EQ(BatchDelays(job, 2).Next(1), 10'000);
  EXPECT_EQ(BatchDelays(job, 3).Next(1), 50'000);
  EXPECT_EQ(BatchDelays(job, 3).Next(3 * 256), 150'000) << "of three local steps";
}

TEST(DelaysTest, TheTimeOfABatchIsProportionalToItsRows) {
  Job job = JobOf({.batch = {Kind::kConstant, 0.010}, .stragglers = 1, .straggler_factor = 2});
  job.train.batch_rows = 70;
  job.train.batch_shares = {2, 2, 2, 1};
  EXPECT_EQ(BatchDelays(job, 0).Next(80), 11'428);
  EXPECT_EQ(BatchDelays(job, 3).Next(40), 11'428);
  EXPECT_EQ(BatchDelays(job, 3).Next(7), 11'428) << "the last batch of a lease";
}

TEST(DelaysTest, PausesComeBeforeBatches) {
  const Job job = JobOf({.batch = {Kind::kConstant, 0.01}, .pause_probability = 1, .pause = {Kind::kConstant, 0.5}});
  EXPECT_EQ(BatchDelays(job, 0).Next(1), 510'000);
}

}  // namespace
}  // namespace tarn::worker
