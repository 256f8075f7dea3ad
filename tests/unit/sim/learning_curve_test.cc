// Shows when a point of the learning curve is due, and which loss its line has.
#include "sim/trial/learning_curve.h"

#include <gtest/gtest.h>

namespace tarn::sim {
namespace {

TEST(LearningCurveTest, ALineHasTheMeanLossSinceThePreviousOne) {
  LearningCurve curve;
  curve.Add({.samples = 0}, 1'000);
  curve.Add({.simulated_seconds = 1.5, .samples = 8, .bytes = 100, .loss_sum = 4, .loss_rows = 8}, 1'000);
  curve.Add({.simulated_seconds = 2, .samples = 8, .bytes = 120, .loss_sum = 4, .loss_rows = 8}, 1'000);
  curve.Add({.simulated_seconds = 3, .samples = 12, .bytes = 200, .loss_sum = 5, .loss_rows = 12}, 1'000);
  EXPECT_EQ(curve.csv(), "seconds,samples,bytes,loss\n1.500000,8,100,0.5\n3.000000,12,200,0.25\n");
}

TEST(LearningCurveTest, APointIsDueAfterEachTwoHundredthAndAtTheEnd) {
  LearningCurve curve;
  EXPECT_TRUE(curve.IsDue(0));
  curve.Add({.samples = 0}, 1'000);
  EXPECT_FALSE(curve.IsDue(4));
  EXPECT_TRUE(curve.IsDue(5));
  curve.Add({.samples = 998}, 1'000);
  EXPECT_FALSE(curve.IsDue(999));
  EXPECT_TRUE(curve.IsDue(1'000));
}

}  // namespace
}  // namespace tarn::sim
