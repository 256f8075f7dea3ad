// Shows that jobs are done elsewhere, in order, as many as may wait, and all of them before the end.
#include "core/background.h"

#include <gtest/gtest.h>

#include <latch>
#include <thread>
#include <vector>

namespace tarn {
namespace {

TEST(Background, JobsAreDoneElsewhereInOrder) {
  std::vector<int> done;
  std::thread::id where;
  Background background("test", 100);
  for (int i = 0; i < 100; ++i)
    ASSERT_TRUE(background.Do([&, i] {
      done.push_back(i);
      where = std::this_thread::get_id();
    }));
  background.Drain();
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[std::size_t(i)], i);
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(Background, NobodyWaitsForOneThatStalls) {
  std::latch begun(1), disk(1);
  std::vector<int> done;
  {
    Background background("test", 2);
    ASSERT_TRUE(background.Do([&] {
      begun.count_down();
      disk.wait();
      done.push_back(0);
    }));
    begun.wait();
    EXPECT_TRUE(background.Do([&] { done.push_back(1); }));
    EXPECT_TRUE(background.Do([&] { done.push_back(2); }));
    EXPECT_FALSE(background.Do([&] { done.push_back(3); }));
    EXPECT_TRUE(done.empty());
    disk.count_down();
  }
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2}));
}

TEST(Background, NothingToDoIsDoneAtOnce) {
  bool done = false;
  Background background("test", 1);
  background.Drain();
  EXPECT_TRUE(background.Do([&] { done = true; }));
  background.Drain();
  EXPECT_TRUE(done);
}

}  // namespace
}  // namespace tarn
