// Shows when a worker logs that it waits for the scheduler, and when it stops waiting.
#include "worker/train/join_watch.h"

#include <gtest/gtest.h>

namespace tarn::worker {
namespace {

TEST(JoinWatchTest, LogsTheSilenceAndGivesUp) {
  JoinWatch watch("tcp://nobody:1", 25);
  testing::internal::CaptureStderr();
  for (TimeUs silence = 0; silence <= 25'000'000; silence += 1'000'000) EXPECT_TRUE(watch.Check(silence));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_NE(text.find("been silent for 10 s"), std::string::npos) << text;
  EXPECT_NE(text.find("gives up in 5 s"), std::string::npos) << text;
  const Status status = watch.Check(25'000'001);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace tarn::worker
