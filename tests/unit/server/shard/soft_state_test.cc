// Shows the state without the rows: its hash depends on everything that a head contains, and a segment begins with the
// head and the pushes that wait for their clock.
#include "server/shard/soft_state.h"

#include <gtest/gtest.h>

#include "sim/disks/memory_shard_log.h"
#include "tests/unit/server/shard/part_fixture.h"

namespace tarn::server {
namespace {

class SoftStateTest : public PartTest {
 protected:
  SoftStateTest() { AddTable(CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated)); }
  SoftState State() const { return {view_, newest_order_, clocks_, rows_}; }
  void Gather(std::uint64_t clock) {
    const Message push = PushOf(kFirstWorker, 7, clock + 1, clock);
    clocks_.Gather(Clock(clock), {.table = spec_.id,
                                  .partition = PartitionOfKey(7),
                                  .incarnation = kFirstWorker,
                                  .sequence = Sequence(clock + 1),
                                  .count = 1,
                                  .keys = PartOf<Push>(push).keys.frame,
                                  .values = PartOf<Push>(push).values});
  }
  View view_;
  CheckpointId newest_order_;
};

TEST_F(SoftStateTest, TheHashDependsOnEveryPart) {
  std::set<std::uint64_t> hashes = {State().Hash()};
  const auto is_new = [&] { return hashes.insert(State().Hash()).second; };
  EXPECT_FALSE(is_new());
  ++view_.version.value;
  EXPECT_TRUE(is_new());
  newest_order_ = CheckpointId(3);
  EXPECT_TRUE(is_new());
  rows_.Find(PartitionId(2))->watermarks().Advance(kFirstWorker);
  EXPECT_TRUE(is_new());
  Gather(0);
  EXPECT_TRUE(is_new());
  Tick(kFirstWorker, 1);
  EXPECT_TRUE(is_new());
}

TEST_F(SoftStateTest, TheHeadContainsAllOfIt) {
  view_.version = ViewVersion(4);
  Gather(0);
  Gather(1);
  Tick(kSecondWorker, 2);
  rows_.expiry().AdvanceClock(Clock(1));
  rows_.Find(PartitionId(2))->watermarks().Set(kSecondWorker, Sequence(6));
  const LoggedHead head = State().Head();
  EXPECT_EQ(head.partition_bits, kBits);
  EXPECT_EQ(head.view.version, ViewVersion(4));
  EXPECT_EQ(head.members.size(), 2u);
  EXPECT_EQ(head.gathered, 2u);
  EXPECT_EQ(head.rows_clock, Clock(1));
  EXPECT_EQ(head.watermarks.at(kSecondWorker).at(2), Sequence(6));
  EXPECT_EQ(head.hash, State().Hash());
}

TEST_F(SoftStateTest, ASegmentBeginsWithTheHeadAndTheGatheredPushes) {
  MemoryDisk disk;
  MemoryShardLog log(&disk, "run/log/shard-0");
  DurableOutbox outbox(&log, &step_);
  State().BeginSegment(CheckpointId(1), &outbox);
  EXPECT_EQ(log.appended(), LogSequence(0)) << "nothing is logged yet";
  ASSERT_TRUE(log.Open({.run = 1, .job = kJob, .shard = ShardId(0)}));
  outbox.Begin(CheckpointId(0));
  Gather(0);
  Gather(1);
  State().BeginSegment(CheckpointId(1), &outbox);
  EXPECT_EQ(log.appended(), LogSequence(3));
  EXPECT_EQ(outbox.appended(), LogSequence(3));
}

}  // namespace
}  // namespace tarn::server
