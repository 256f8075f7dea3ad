// Shows a shard's share of the memory budget, when the heap is trimmed, and when the shard warns.
#include "server/shard_memory.h"

#include <gtest/gtest.h>

#include <atomic>

namespace tarn::server {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20, kBudget = 1024 * kMiB;

class ShardMemoryTest : public testing::Test {
 protected:
  std::atomic<int> trims_ = 0;
  DiskPool pool_;
  MemoryMeter meter_{1};
  HeapTrimmer trimmer_{&pool_, [this] { ++trims_; }};
  ShardMemory memory_{ShardId(3), 0, &meter_, &trimmer_};
};

TEST_F(ShardMemoryTest, TheMemoryOfACheckpointIsDeductedFromTheShare) {
  EXPECT_FALSE(memory_.IsDue(0)) << "there is no budget";
  EXPECT_EQ(memory_.Begin(kBudget, 0), 1000 * kMiB);
  EXPECT_TRUE(memory_.IsDue(0));
  EXPECT_EQ(memory_.Share({.bytes = 40 * kMiB, .rows = 1, .rows_in_memory = 1}, 0), 1000 * kMiB);
  EXPECT_FALSE(memory_.IsDue(99'999));
  EXPECT_TRUE(memory_.IsDue(100'000));
  EXPECT_EQ(memory_.Share({.bytes = 40 * kMiB, .checkpoint_bytes = 300 * kMiB}, 100'000), 700 * kMiB);
  EXPECT_TRUE(memory_.IsDue(120'000)) << "memory changes fast during a checkpoint";
  EXPECT_EQ(memory_.Share({.checkpoint_bytes = 2000 * kMiB}, 120'000), 0u);
}

TEST_F(ShardMemoryTest, TheHeapIsTrimmedOnceSomeTimeAfterACheckpoint) {
  memory_.TrimIfDue(1'000'000);
  memory_.TrimSoon(1'000'000);
  memory_.TrimIfDue(2'999'999);
  EXPECT_EQ(trims_, 0);
  memory_.TrimIfDue(3'000'000);
  while (trims_ == 0) continue;
  memory_.TrimIfDue(9'000'000);
  EXPECT_EQ(trims_, 1);
}

TEST_F(ShardMemoryTest, WarnsWhenNothingIsLeftToEvict) {
  (void)memory_.Begin(kBudget, 0);
  const auto warned = [&](std::uint64_t rows_in_memory, TimeUs now) {
    testing::internal::CaptureStderr();
    (void)memory_.Share({.resident = 2 * kBudget, .rows = 160, .rows_in_memory = rows_in_memory}, now);
    return testing::internal::GetCapturedStderr().find("shard 3: the process takes 2048 MiB") != std::string::npos;
  };
  EXPECT_FALSE(warned(11, 0));
  EXPECT_TRUE(warned(10, 0));
  EXPECT_FALSE(warned(10, 59'999'999));
  EXPECT_TRUE(warned(10, 60'000'000));
}

}  // namespace
}  // namespace tarn::server
