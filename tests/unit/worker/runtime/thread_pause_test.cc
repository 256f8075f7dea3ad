// Shows that a pause ends when its condition does, and that an interrupt ends the pause in progress or else the next.
#include "worker/runtime/thread_pause.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tarn::worker {
namespace {

constexpr TimeUs kHourUs = 3'600'000'000;

TEST(ThreadPause, EndsWithItsCondition) {
  ThreadPause pause;
  int checks = 0;
  pause.While(
      [&] {
        EXPECT_TRUE(pause.paused());
        return ++checks < 3;
      },
      1);
  EXPECT_EQ(checks, 3);
  EXPECT_FALSE(pause.paused());
}

TEST(ThreadPause, AnInterruptEndsTheNextPause) {
  ThreadPause pause;
  pause.Interrupt();
  pause.While([] { return true; }, kHourUs);
  int checks = 0;
  pause.While([&] { return ++checks < 2; }, 1);
  EXPECT_EQ(checks, 2) << "only that one";
}

TEST(ThreadPause, AnInterruptEndsThePauseInProgress) {
  ThreadPause pause;
  std::thread thread([&] { pause.While([] { return true; }, kHourUs); });
  while (!pause.paused()) std::this_thread::yield();
  pause.Interrupt();
  thread.join();
  EXPECT_FALSE(pause.paused());
}

}  // namespace
}  // namespace tarn::worker
