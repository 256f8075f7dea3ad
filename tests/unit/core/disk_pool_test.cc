// Shows that the jobs of a strand run in order, one at a time and on one thread, that strands do not wait for each
// other, that a strand refuses jobs beyond a bound, and that posted jobs have ended before a strand or its pool is
// destroyed.
#include "core/disk_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace tarn {
namespace {

TEST(DiskPool, AStrandKeepsItsOrder) {
  DiskPool pool;
  DiskPool::Strand first(&pool, "first"), strand(&pool, "second");
  std::vector<int> order;  // without a lock
  for (int i = 0; i < 1000; ++i) strand.Post([&order, i] { order.push_back(i); });
  strand.Drain();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[std::size_t(i)], i);
}

TEST(DiskPool, ABlockedStrandDoesNotDelayOthers) {
  DiskPool pool;
  std::vector<std::unique_ptr<DiskPool::Strand>> slow;
  std::promise<void> end;
  for (const std::shared_future<void> ended = end.get_future().share(); slow.size() < 5;) {
    slow.push_back(std::make_unique<DiskPool::Strand>(&pool, "slow"));
    slow.back()->Post([ended] { ended.wait(); });
  }
  DiskPool::Strand quick(&pool, "quick");
  std::atomic<bool> done = false;
  quick.Post([&done] { done = true; });
  quick.Drain();
  EXPECT_TRUE(done);
  end.set_value();
}

// Otherwise the malloc arena of each thread would keep memory of all strands.
TEST(DiskPool, AStrandKeepsItsThread) {
  DiskPool pool;
  DiskPool::Strand first(&pool, "first"), second(&pool, "second");
  std::set<std::thread::id> of_first, of_second;
  for (int i = 0; i < 100; ++i) {
    first.Post([&] { of_first.insert(std::this_thread::get_id()); });
    second.Post([&] { of_second.insert(std::this_thread::get_id()); });
    first.Drain();
    second.Drain();
  }
  EXPECT_EQ(of_first.size(), 1u);
  EXPECT_EQ(of_second.size(), 1u);
  EXPECT_NE(of_first, of_second);
}

TEST(DiskPool, ADestroyedStrandLeavesItsThreadToTheNext) {
  DiskPool pool;
  std::thread::id threads[2];
  for (std::thread::id& thread : threads) {
    DiskPool::Strand strand(&pool, "one");
    strand.Post([&] { thread = std::this_thread::get_id(); });
  }
  EXPECT_NE(threads[0], std::this_thread::get_id());
  EXPECT_EQ(threads[0], threads[1]);
}

TEST(DiskPool, AJobBeyondTheBoundIsRefused) {
  std::latch begun(1), disk(1);
  std::vector<int> done;
  {
    DiskPool pool;
    DiskPool::Strand strand(&pool, "test");
    ASSERT_TRUE(strand.TryPost(2, [&] {
      begun.count_down();
      disk.wait();
      done.push_back(0);
    }));
    begun.wait();
    EXPECT_TRUE(strand.TryPost(2, [&] { done.push_back(1); }));
    EXPECT_TRUE(strand.TryPost(2, [&] { done.push_back(2); }));
    EXPECT_FALSE(strand.TryPost(2, [&] { done.push_back(3); }));
    EXPECT_TRUE(strand.TryPost(3, [&] { done.push_back(4); }));
    EXPECT_TRUE(done.empty());
    disk.count_down();
  }
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2, 4}));
}

TEST(DiskPool, PostedJobsEndBeforeAStrandIsDestroyed) {
  int done = 0;
  {
    DiskPool pool;
    DiskPool::Strand behind(&pool, "behind");
    DiskPool::Strand first(&pool, "first");
    for (int i = 0; i < 10; ++i) first.Post([&] { behind.Post([&done] { ++done; }); });
  }
  EXPECT_EQ(done, 10);
}

TEST(DiskPool, SeveralThreadsMayPost) {
  DiskPool pool;
  DiskPool::Strand other(&pool, "other"), strand(&pool, "test");
  int sum = 0;
  std::vector<std::jthread> callers;
  callers.reserve(4);
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      for (int j = 0; j < 250; ++j) strand.Post([&sum] { ++sum; });
    });
  callers.clear();
  strand.Drain();
  EXPECT_EQ(sum, 1000);
}

TEST(DiskPool, JobsWithoutAStrandRunInParallelAndEndBeforeThePool) {
  std::latch together(3);
  std::atomic<int> done = 0;
  {
    DiskPool pool("test", 3);
    for (int i = 0; i < 3; ++i)
      pool.Post([&] {
        together.arrive_and_wait();
        ++done;
      });
  }
  EXPECT_EQ(done, 3);
}

TEST(DiskPool, AThreadHasTheNameOfWhatItRuns) {
  const auto name = [](std::string* out) {
    std::array<char, 16> text{};
    pthread_getname_np(pthread_self(), text.data(), text.size());
    *out = text.data();
  };
  std::string of_strand, of_pool;
  {
    DiskPool pool("some-pool", 1);
    DiskPool::Strand strand(&pool, "some-strand");
    strand.Post([&] { name(&of_strand); });
    strand.Drain();
    pool.Post([&] { name(&of_pool); });
  }
  EXPECT_EQ(of_strand, "some-strand");
  EXPECT_EQ(of_pool, "some-pool");
}

}  // namespace
}  // namespace tarn
