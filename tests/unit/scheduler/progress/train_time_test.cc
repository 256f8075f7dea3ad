// Shows TrainTime: pauses between epochs count only in the total, and earlier starts are added.
#include "scheduler/progress/train_time.h"

#include <gtest/gtest.h>

namespace tarn::scheduler {
namespace {

constexpr TimeUs kSecondUs = 1'000'000;

TEST(TrainTime, RunsFromTheFirstGrantToTheLastEnd) {
  TrainTime time;
  EXPECT_EQ(time.TotalSeconds(5 * kSecondUs), 0);
  time.OnGrant(10 * kSecondUs);
  time.OnGrant(11 * kSecondUs);
  EXPECT_EQ(time.TotalSeconds(12 * kSecondUs), 2);
  EXPECT_EQ(time.TrainSeconds(12 * kSecondUs), 2);
  time.End(13 * kSecondUs);
  time.End(14 * kSecondUs);  // idempotent
  EXPECT_EQ(time.TotalSeconds(20 * kSecondUs), 3);
  time.OnGrant(15 * kSecondUs);
  EXPECT_EQ(time.TotalSeconds(16 * kSecondUs), 6);
  EXPECT_EQ(time.TrainSeconds(16 * kSecondUs), 4);
}

TEST(TrainTime, EarlierStartsCount) {
  TrainTime time(30, 20);
  EXPECT_EQ(time.TotalSeconds(0), 30);
  time.OnGrant(0);
  time.End(kSecondUs);
  EXPECT_EQ(time.TotalSeconds(kSecondUs), 31);
  EXPECT_EQ(time.TrainSeconds(kSecondUs), 21);
}

}  // namespace
}  // namespace tarn::scheduler
