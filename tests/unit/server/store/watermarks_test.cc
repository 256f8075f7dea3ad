// Shows that a partition's watermarks decide which push of a worker is the next, independently of other workers.
#include "server/store/watermarks.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

constexpr Incarnation kWorker(10), kOther(7);

TEST(WatermarksTest, TheNextPushIsTheOneAfterTheWatermark) {
  Watermarks watermarks;
  EXPECT_EQ(watermarks.Judge(kWorker, Sequence(1)), Watermarks::Order::kNext);
  EXPECT_EQ(watermarks.Judge(kWorker, Sequence(2)), Watermarks::Order::kBeyond);
  watermarks.Advance(kWorker);
  EXPECT_EQ(watermarks.Of(kWorker), Sequence(1));
  EXPECT_EQ(watermarks.Judge(kWorker, Sequence(1)), Watermarks::Order::kRepeated);
  EXPECT_EQ(watermarks.Judge(kWorker, Sequence(2)), Watermarks::Order::kNext);
}

TEST(WatermarksTest, EachWorkerHasItsOwnWatermark) {
  Watermarks watermarks;
  for (int i = 0; i < 3; ++i) watermarks.Advance(kWorker);
  watermarks.Advance(kOther);
  EXPECT_EQ(watermarks.Of(kWorker), Sequence(3));
  EXPECT_EQ(watermarks.Of(kOther), Sequence(1));
  EXPECT_EQ(watermarks.Of(Incarnation(11)), Sequence(0));
  watermarks.Drop(kWorker);
  EXPECT_EQ(watermarks.Of(kWorker), Sequence(0));
  EXPECT_EQ(watermarks.entries(), (std::vector<std::pair<Incarnation, Sequence>>{{kOther, Sequence(1)}}));
  watermarks.Drop(kWorker);
}

TEST(WatermarksTest, AreSetToTheValuesOfACopy) {
  Watermarks watermarks;
  watermarks.Set(kWorker, Sequence(5));
  watermarks.Set(kOther, Sequence(0));
  EXPECT_EQ(watermarks.entries().size(), 1u);
  EXPECT_EQ(watermarks.Judge(kWorker, Sequence(6)), Watermarks::Order::kNext);
  watermarks.Set(kWorker, Sequence(2));
  EXPECT_EQ(watermarks.Of(kWorker), Sequence(2));
}

}  // namespace
}  // namespace tarn::server
