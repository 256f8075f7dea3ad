// Shows that the watermarks of a shard's partitions are read from a log as they were written, and that those of another
// shard are refused.
#include "server/shard/watermark_table.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

constexpr Incarnation kWorker(10), kOther(11);

StoreOptions OwnerOf(std::vector<PartitionId> owned) { return {.partition_bits = 2, .owned = std::move(owned)}; }

TEST(WatermarkTableTest, IsDecodedAsItWasEncoded) {
  Store store(OwnerOf({PartitionId(1), PartitionId(2)})), again(OwnerOf({PartitionId(1), PartitionId(2)}));
  store.Find(PartitionId(1))->watermarks().Set(kWorker, Sequence(3));
  store.Find(PartitionId(2))->watermarks().Set(kWorker, Sequence(1));
  store.Find(PartitionId(2))->watermarks().Set(kOther, Sequence(9));
  const WatermarkTable table = WatermarksOf(store);
  const std::vector<Sequence> of_worker = {Sequence(0), Sequence(3), Sequence(1), Sequence(0)};
  const std::vector<Sequence> of_other = {Sequence(0), Sequence(0), Sequence(9), Sequence(0)};
  EXPECT_EQ(table, (WatermarkTable{{kWorker, of_worker}, {kOther, of_other}}));
  ASSERT_TRUE(RestoreWatermarks(table, &again));
  EXPECT_EQ(WatermarksOf(again), table);
  DropWatermarks(kWorker, &again);
  EXPECT_EQ(WatermarksOf(again), (WatermarkTable{{kOther, of_other}}));
}

TEST(WatermarkTableTest, TheTableOfAnotherShardIsRefused) {
  Store store(OwnerOf({PartitionId(1)}));
  const WatermarkTable of_another = {{kWorker, {Sequence(1), Sequence(0), Sequence(0), Sequence(0)}}};
  EXPECT_EQ(RestoreWatermarks(of_another, &store).error().code, ErrorCode::kCorrupt);
  const WatermarkTable of_fewer = {{kWorker, {Sequence(0), Sequence(1)}}};
  EXPECT_EQ(RestoreWatermarks(of_fewer, &store).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace tarn::server
