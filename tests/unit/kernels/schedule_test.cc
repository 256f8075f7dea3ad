// Shows the learning rate at the clocks at which its schedule changes.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/optimizer.h"

namespace tarn::kernels {
namespace {

OptimizerSpec Spec(ScheduleKind kind, std::uint64_t warmup, std::uint64_t period, float factor) {
  OptimizerSpec spec;
  spec.learning_rate = 0.5f;
  spec.schedule = {kind, warmup, period, factor};
  return spec;
}

TEST(ScheduleTest, Constant) {
  const OptimizerSpec spec = Spec(ScheduleKind::kConstant, 0, 0, 0.1f);
  for (const std::uint64_t clock : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}})
    EXPECT_EQ(LearningRate(spec, Clock(clock)), 0.5f);
}

TEST(ScheduleTest, WarmUpRisesToTheFullRate) {
  const OptimizerSpec spec = Spec(ScheduleKind::kConstant, 10, 0, 0.1f);
  EXPECT_EQ(LearningRate(spec, Clock(0)), 0.05f);
  EXPECT_EQ(LearningRate(spec, Clock(4)), 0.25f);
  EXPECT_EQ(LearningRate(spec, Clock(9)), 0.5f);
  EXPECT_EQ(LearningRate(spec, Clock(10)), 0.5f);
  EXPECT_EQ(LearningRate(spec, Clock(1000)), 0.5f);
}

TEST(ScheduleTest, StepsCountFromTheEndOfTheWarmUp) {
  const OptimizerSpec spec = Spec(ScheduleKind::kStep, 10, 100, 0.5f);
  EXPECT_EQ(LearningRate(spec, Clock(9)), 0.5f);
  EXPECT_EQ(LearningRate(spec, Clock(109)), 0.5f);
  EXPECT_EQ(LearningRate(spec, Clock(110)), 0.25f);
  EXPECT_EQ(LearningRate(spec, Clock(209)), 0.25f);
  EXPECT_EQ(LearningRate(spec, Clock(210)), 0.125f);
  EXPECT_EQ(LearningRate(Spec(ScheduleKind::kStep, 0, 0, 0.5f), Clock(1000)), 0.5f) << "no period, no steps";
}

TEST(ScheduleTest, CosineFallsToItsFloorAndStays) {
  const OptimizerSpec spec = Spec(ScheduleKind::kCosine, 10, 100, 0.25f);
  EXPECT_EQ(LearningRate(spec, Clock(10)), 0.5f);
  EXPECT_FLOAT_EQ(LearningRate(spec, Clock(60)), 0.5f * 0.625f);
  EXPECT_EQ(LearningRate(spec, Clock(110)), 0.125f);
  EXPECT_EQ(LearningRate(spec, Clock(1u << 30)), 0.125f);
  for (std::uint64_t d = 0; d <= 100; ++d)
    EXPECT_FLOAT_EQ(LearningRate(spec, Clock(10 + d)),
                    float(0.5 * (0.25 + 0.75 * (1 + std::cos(M_PI * double(d) / 100)) / 2)));
  EXPECT_EQ(LearningRate(Spec(ScheduleKind::kCosine, 0, 50, 0.0f), Clock(50)), 0.0f);
}

}  // namespace
}  // namespace tarn::kernels
