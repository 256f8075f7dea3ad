// Shows that a large request is not passed by smaller ones for ever.
#include "worker/runtime/byte_budget.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

namespace tarn::worker {
namespace {

TEST(ByteBudget, AnyNumberOfBytesFitsAloneAndOthersOnlyTogether) {
  ByteBudget budget(100);
  EXPECT_TRUE(budget.TryTake(1000));
  EXPECT_FALSE(budget.TryTake(1));
  budget.Return(1000);
  EXPECT_TRUE(budget.TryTake(60));
  EXPECT_FALSE(budget.TryTake(41));
  EXPECT_TRUE(budget.TryTake(40));
  EXPECT_EQ(budget.taken(), 100u);
}

TEST(ByteBudget, SmallRequestsDoNotPassALargeOne) {
  ByteBudget budget(100);
  budget.Take(60);
  std::mutex mutex;
  std::vector<std::size_t> taken;
  std::vector<std::thread> threads;
  for (const std::size_t bytes : {90, 10, 20}) {
    const std::uint64_t before = budget.waiting();
    threads.emplace_back([&, bytes] {
      budget.Take(bytes);
      const std::lock_guard lock(mutex);
      taken.push_back(bytes);
    });
    while (budget.waiting() == before) std::this_thread::yield();
  }
  {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(taken.empty()) << "10 would fit";
  }
  budget.Return(60);
  threads[0].join();
  threads[1].join();
  EXPECT_EQ(budget.taken(), 100u);
  EXPECT_EQ(budget.waiting(), 1u);
  budget.Return(90);
  threads[2].join();
  EXPECT_EQ(budget.taken(), 30u);
}

}  // namespace
}  // namespace tarn::worker
