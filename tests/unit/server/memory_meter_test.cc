// Shows how a server's shards share its memory budget, and when the heap is trimmed to return its holes to the system.
#include "server/memory_meter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <semaphore>

#include "server/heap_trimmer.h"

namespace tarn::server {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(MemoryMeterTest, UncountedMemoryIsDeductedFromAllShares) {
  MemoryMeter meter(2);
  EXPECT_EQ(meter.Share(0, 40 * kMiB, 0, 1024 * kMiB), 500 * kMiB) << "24 MiB besides at the least";
  EXPECT_EQ(meter.Share(1, 60 * kMiB, 324 * kMiB, 1024 * kMiB), 400 * kMiB) << "224 MiB that neither counts";
  EXPECT_EQ(meter.Share(1, 60 * kMiB, 9000 * kMiB, 1024 * kMiB), 64 * kMiB) << "an eighth stays";
}

TEST(MemoryMeterTest, ATrimIsDueIfHolesWouldEvictRowsAndAtMostOncePerPeriod) {
  MemoryMeter meter(2);
  constexpr std::size_t kBudget = 1600 * kMiB;
  (void)meter.Share(0, 500 * kMiB, 0, kBudget);
  (void)meter.Share(1, 300 * kMiB, 0, kBudget);
  EXPECT_FALSE(meter.TrimIsDue((800 + 24 + 100) * kMiB, kBudget, 5));
  EXPECT_TRUE(meter.TrimIsDue((800 + 24 + 100) * kMiB + 1, kBudget, 5));
  EXPECT_FALSE(meter.TrimIsDue(2000 * kMiB, kBudget, 1'000'004)) << "somebody does it";
  EXPECT_TRUE(meter.TrimIsDue(2000 * kMiB, kBudget, 1'000'005));
  EXPECT_FALSE(meter.TrimIsDue(700 * kMiB, kBudget, 9'000'000)) << "counted, and not touched yet";
}

TEST(MemoryMeterTest, TrimsThatFreeLittleBecomeLessFrequent) {
  MemoryMeter meter(1);
  constexpr std::size_t kBudget = 640 * kMiB;
  TimeUs now = 0;
  for (TimeUs period = 1'000'000; period <= 16'000'000; period *= 2) {
    EXPECT_TRUE(meter.TrimIsDue(500 * kMiB, kBudget, now));
    meter.Trimmed(500 * kMiB, 490 * kMiB + 1);
    const TimeUs next = now + std::min<TimeUs>(period, 4'000'000);  // as set by TrimIsDue
    EXPECT_FALSE(meter.TrimIsDue(500 * kMiB, kBudget, next - 1));
    now = next;
  }
  EXPECT_TRUE(meter.TrimIsDue(500 * kMiB, kBudget, now));
  meter.Trimmed(500 * kMiB, 490 * kMiB);
  now += 4'000'000;
  EXPECT_TRUE(meter.TrimIsDue(500 * kMiB, kBudget, now));
  EXPECT_TRUE(meter.TrimIsDue(500 * kMiB, kBudget, now + 1'000'000)) << "much was won";
}

TEST(HeapTrimmerTest, BeginDoesNotWaitAndOneTrimRunsAtATime) {
  std::binary_semaphore begun(0), go_on(0);
  std::atomic<int> trims = 0;
  {
    DiskPool pool;
    HeapTrimmer trimmer(&pool, [&] {
      ++trims;
      begun.release();
      go_on.acquire();
    });
    trimmer.Begin();
    begun.acquire();
    trimmer.Begin();  // returns while the first trim is running
    go_on.release();
  }
  EXPECT_EQ(trims, 1);
}

}  // namespace
}  // namespace tarn::server
