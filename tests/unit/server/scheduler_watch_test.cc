// Shows how long a shard continues without hearing from the scheduler, and what it logs in that time.
#include "server/scheduler_watch.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

constexpr TimeUs kLeaseUs = 3'000'000, kSecondUs = 1'000'000;

class SchedulerWatchTest : public testing::Test {
 protected:
  // Runs a turn every second until `until`. The scheduler was last heard at time 0.
  Status WaitUntil(SchedulerWatch* watch, TimeUs until, bool joined) {
    Status status;
    for (; now_ <= until && status; now_ += kSecondUs) status = watch->Check(now_, 0, kLeaseUs, joined);
    return status;
  }

  const ServerOptions options_{.scheduler = "tcp://nobody:1", .rank = ServerRank(2), .shards = 4, .join_seconds = 25};
  TimeUs now_ = 0;
};

TEST_F(SchedulerWatchTest, AShardThatHasJoinedFailsAfterTwoLeases) {
  SchedulerWatch watch(options_, 1);
  watch.Begin(0);
  EXPECT_TRUE(WaitUntil(&watch, 2 * kLeaseUs, true));
  const Status status = WaitUntil(&watch, 2 * kLeaseUs + kSecondUs, true);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(status.error().message, "shard 9: the scheduler at tcp://nobody:1 was not heard for 7 s");
}

TEST_F(SchedulerWatchTest, APauseOfTheProcessDoesNotCount) {
  SchedulerWatch watch(options_, 0);
  watch.Begin(0);
  EXPECT_TRUE(watch.Check(100 * kLeaseUs, 0, kLeaseUs, true));
}

TEST_F(SchedulerWatchTest, TheFirstShardLogsTheWaitForAWelcome) {
  for (const std::uint32_t index : {0u, 1u}) {
    SchedulerWatch watch(options_, index);
    watch.Begin(now_ = 0);
    testing::internal::CaptureStderr();
    EXPECT_TRUE(WaitUntil(&watch, 25 * kSecondUs, false));
    const std::string text = testing::internal::GetCapturedStderr();
    EXPECT_EQ(text.find("has waited 10 s") != std::string::npos, index == 0) << text;
    EXPECT_EQ(text.find("gives up in 5 s") != std::string::npos, index == 0) << text;
    EXPECT_FALSE(WaitUntil(&watch, 26 * kSecondUs, false));
  }
}

}  // namespace
}  // namespace tarn::server
