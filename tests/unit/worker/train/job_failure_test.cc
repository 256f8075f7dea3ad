// Shows that the first error of a job is reported every second.
#include "worker/train/job_failure.h"

#include <gtest/gtest.h>

namespace tarn::worker {
namespace {

TEST(JobFailureTest, ReportsTheFirstErrorEverySecond) {
  JobFailure failure;
  EXPECT_FALSE(failure);
  EXPECT_FALSE(failure.TakeReport(5));
  EXPECT_TRUE(failure.Set({ErrorCode::kIo, "first"}));
  EXPECT_FALSE(failure.Set({ErrorCode::kCorrupt, "second"}));
  EXPECT_TRUE(failure);
  EXPECT_EQ(failure.error().message, "first");
  const auto report = failure.TakeReport(5);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->code, ErrorCode::kIo);
  EXPECT_EQ(report->reason, "first");
  EXPECT_FALSE(failure.TakeReport(1'000'004));
  EXPECT_TRUE(failure.TakeReport(1'000'005));
}

}  // namespace
}  // namespace tarn::worker
