// Shows that a single caller is noticed, and that callers that waited at once are a crowd for a time.
#include "worker/runtime/waiting_callers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace tarn::worker {
namespace {

TEST(WaitingCallers, SeveralAtOnceAreACrowdForATime) {
  WaitingCallers callers;
  EXPECT_FALSE(callers.single());
  EXPECT_TRUE(callers.Enter());
  EXPECT_TRUE(callers.single());
  EXPECT_FALSE(callers.crowded());
  const TimeUs begin = WaitingCallers::Now();
  EXPECT_FALSE(callers.Enter());
  EXPECT_FALSE(callers.single());
  callers.Leave();
  while (callers.crowded()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(WaitingCallers::Now() - begin, 10'000);
  EXPECT_TRUE(callers.single());
  callers.Leave();
  EXPECT_FALSE(callers.single());
}

}  // namespace
}  // namespace tarn::worker
