// Shows that work of a strand is done in order and by one thread at a time, that strands do not wait for each other,
// and that what was posted is done before a strand or its pool goes.
#include "core/disk_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace tarn {
namespace {

TEST(DiskPool, AStrandKeepsItsOrder) {
  DiskPool pool("test", 4);
  DiskPool::Strand strand(&pool);
  std::vector<int> order;  // without a lock
  for (int i = 0; i < 1000; ++i) strand.Post([&order, i] { order.push_back(i); });
  strand.Drain();
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[std::size_t(i)], i);
}

TEST(DiskPool, AStrandThatWaitsHoldsUpNoOther) {
  DiskPool pool("test", 2);
  DiskPool::Strand slow(&pool), quick(&pool);
  std::promise<void> end;
  slow.Post([future = end.get_future()] { future.wait(); });  // a job that can only be moved
  std::atomic<bool> done = false;
  quick.Post([&done] { done = true; });
  quick.Drain();
  EXPECT_TRUE(done);
  end.set_value();
}

TEST(DiskPool, WhatWasPostedIsDoneBeforeAStrandGoes) {
  int done = 0;
  {
    DiskPool pool("test", 2);
    DiskPool::Strand behind(&pool);
    DiskPool::Strand first(&pool);
    for (int i = 0; i < 10; ++i) first.Post([&] { behind.Post([&done] { ++done; }); });
  }
  EXPECT_EQ(done, 10);
}

TEST(DiskPool, CallersNeedNotBeOneThread) {
  DiskPool pool("test", 2);
  DiskPool::Strand strand(&pool);
  int sum = 0;
  std::vector<std::jthread> callers;
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      for (int j = 0; j < 250; ++j) strand.Post([&sum] { ++sum; });
    });
  callers.clear();
  strand.Drain();
  EXPECT_EQ(sum, 1000);
}

}  // namespace
}  // namespace tarn
