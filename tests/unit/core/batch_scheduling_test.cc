// Shows that threads and those that they start get batch scheduling, unless the user has chosen another policy.
#include "core/batch_scheduling.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace tarn {
namespace {

TEST(BatchScheduling, AppliesToTheThreadAndThoseThatItStarts) {
  if (sched_getscheduler(0) != SCHED_OTHER) GTEST_SKIP() << "this process has a policy of its own (chrt)";
  int own = -1, started = -1;
  std::thread([&] {
    EXPECT_TRUE(UseBatchScheduling());
    own = sched_getscheduler(0);
    std::thread([&] { started = sched_getscheduler(0); }).join();
  }).join();
  EXPECT_EQ(own, SCHED_BATCH);
  EXPECT_EQ(started, SCHED_BATCH);
}

TEST(BatchScheduling, KeepsAPolicyThatTheUserHasChosen) {
  int policy = -1;
  std::thread([&] {
    const sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0);
    EXPECT_TRUE(UseBatchScheduling());
    policy = sched_getscheduler(0);
  }).join();
  EXPECT_EQ(policy, SCHED_IDLE);
}

}  // namespace
}  // namespace tarn
