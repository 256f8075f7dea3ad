// Shows that a wake-up is taken once, whether it comes before or during a sleep, and that only waking a sleeper needs a
// system call.
#include "net/zmq/wake_event.h"

#include <gtest/gtest.h>
#include <poll.h>

namespace tarn::net {
namespace {

bool IsReadable(const WakeEvent& wake) {
  pollfd file{wake.file(), POLLIN, 0};
  return poll(&file, 1, 0) == 1;
}

TEST(WakeEvent, AWakeUpBeforeASleepIsTakenOnce) {
  WakeEvent wake;
  EXPECT_FALSE(wake.Take());
  wake.Wake();
  wake.Wake();
  EXPECT_TRUE(wake.asked());
  EXPECT_FALSE(IsReadable(wake));
  EXPECT_FALSE(wake.BeginSleep());
  wake.EndSleep();
  EXPECT_TRUE(wake.Take());
  EXPECT_FALSE(wake.Take());
  EXPECT_TRUE(wake.BeginSleep());
}

TEST(WakeEvent, ASleeperIsWokenByTheFile) {
  WakeEvent wake;
  ASSERT_TRUE(wake.BeginSleep());
  wake.Wake();
  ASSERT_TRUE(IsReadable(wake));
  wake.SetReadable(true);
  wake.EndSleep();
  EXPECT_TRUE(wake.Take());
  EXPECT_FALSE(IsReadable(wake));
  EXPECT_FALSE(wake.Take());
}

}  // namespace
}  // namespace tarn::net
