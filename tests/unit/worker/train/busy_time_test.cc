// Shows that overlapping activities count once, and that the time between activities does not count.
#include "worker/train/busy_time.h"

#include <gtest/gtest.h>

namespace tarn::worker {
namespace {

BusyTime::Time At(int seconds) { return BusyTime::Time(std::chrono::seconds(seconds)); }

TEST(BusyTime, CountsOverlappingActivitiesOnce) {
  BusyTime busy;
  EXPECT_EQ(busy.Seconds(At(5)), 0);
  busy.Begin(At(10));
  busy.Begin(At(11));
  EXPECT_EQ(busy.Seconds(At(12)), 2) << "in progress";
  busy.End(At(13));
  busy.End(At(14));
  EXPECT_EQ(busy.Seconds(At(20)), 4) << "none in progress";
  busy.Begin(At(30));
  busy.End(At(31));
  EXPECT_EQ(busy.Seconds(At(40)), 5);
}

}  // namespace
}  // namespace tarn::worker
