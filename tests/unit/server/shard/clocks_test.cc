// Shows rules A2 and M3: clocks close in order, once their policies allow it, and pushes of a dead worker beyond its
// end clock are discarded.
#include "server/shard/clocks.h"

#include <gtest/gtest.h>

#include "tests/unit/server/shard/part_fixture.h"

namespace tarn::server {
namespace {

class ClocksTest : public PartTest {
 protected:
  ClocksTest() { AddTable(CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated)); }
  void Gather(Incarnation worker, std::uint64_t clock, Key key, float gradient) {
    const std::vector<float> row(spec_.dim, gradient);
    clocks_.Gather(Clock(clock), {.table = spec_.id,
                                  .partition = PartitionOfKey(key),
                                  .rank = WorkerRank(worker == kFirstWorker ? 0 : 1),
                                  .incarnation = worker,
                                  .sequence = Sequence(++sequence_),
                                  .count = 1,
                                  .keys = Buffer::Copy(&key, sizeof key),
                                  .values = Buffer::CopyOf(std::span<const float>(row)),
                                  .bytes = 16});
  }
  void EndFirst(std::uint64_t end) {
    WorkerEntry ended = LiveWorker(0, kFirstWorker.value);
    ended.state = WorkerState::kEnded;
    ended.end = Clock(end);
    clocks_.Adopt({ended, LiveWorker(1, kSecondWorker.value)});
  }
  std::uint64_t sequence_ = 0;
};

TEST_F(ClocksTest, AClockClosesOnceAllHaveFinishedIt) {
  Gather(kFirstWorker, 0, 7, 4);
  Gather(kFirstWorker, 1, 7, 8);
  Tick(kFirstWorker, 2);
  ASSERT_TRUE(clocks_.CloseReady());
  EXPECT_TRUE(events_.closed.empty());
  Tick(kSecondWorker, 1);
  ASSERT_TRUE(clocks_.CloseReady());
  EXPECT_EQ(events_.closed, std::vector<Clock>{Clock(0)});
  EXPECT_EQ(Value(7), -2.0f) << "half of it: there are two workers";
  EXPECT_EQ(rows_.expiry().clock(), Clock(1));
  EXPECT_GT(clocks_.buckets().bytes(), 0u);
}

TEST_F(ClocksTest, ClocksCloseInOrderAndOnlyBelowTheLimit) {
  for (const std::uint64_t clock : {2, 0, 1}) Gather(kFirstWorker, clock, 7, 2);
  Tick(kFirstWorker, 3);
  Tick(kSecondWorker, 3);
  ASSERT_TRUE(clocks_.CloseBelow(Clock(2)));
  EXPECT_EQ(events_.closed, (std::vector<Clock>{Clock(0), Clock(1)}));
  EXPECT_EQ(rows_.expiry().clock(), Clock(2));
  ASSERT_TRUE(clocks_.CloseReady());
  EXPECT_EQ(events_.closed.back(), Clock(2));
  EXPECT_TRUE(clocks_.buckets().empty());
  EXPECT_EQ(clocks_.buckets().bytes(), 0u);
}

TEST_F(ClocksTest, PushesOfADeadWorkerCountUpToItsEndClock) {
  Gather(kFirstWorker, 0, 7, 4);
  Gather(kFirstWorker, 1, 7, 8);
  EndFirst(1);
  EXPECT_EQ(events_.voided, std::vector<Sequence>{Sequence(2)});
  Tick(kSecondWorker, 2);
  ASSERT_TRUE(clocks_.CloseReady());
  EXPECT_EQ(Value(7), -2.0f);
}

TEST_F(ClocksTest, PushesOfAWorkerThatHasLeftTheViewDoNotCount) {
  Gather(kFirstWorker, 3, 7, 4);
  const Cohort::Changes changes = clocks_.Adopt({LiveWorker(1, kSecondWorker.value)});
  EXPECT_EQ(changes.dropped, std::vector<Incarnation>{kFirstWorker});
  EXPECT_EQ(events_.voided.size(), 1u);
  EXPECT_TRUE(clocks_.buckets().empty());
}

TEST_F(ClocksTest, EachTableClosesByItsOwnPolicy) {
  class AtOnce final : public ConsistencyPolicy {
   public:
    using ConsistencyPolicy::ConsistencyPolicy;
    Clock WantedClock(Incarnation, Clock, const Cohort&) const override { return Clock(0); }
    bool MayClose(Clock, std::span<const Contribution> gathered, const Cohort&) const override {
      return std::ranges::count(gathered, table(), &Contribution::table) == 2;
    }
  };
  static constexpr auto kMakeAtOnce = [](const TableSpec& spec) -> std::unique_ptr<ConsistencyPolicy> {
    return std::make_unique<AtOnce>(spec);
  };
  static const PolicyEntry kEntries[] = {{"bsp", BuiltInPolicies().front().make}, {"ssp", +kMakeAtOnce}};
  TablePolicies policies(kEntries);
  Clocks clocks(&policies, &rows_, &events_);
  clocks.Adopt({LiveWorker(0, kFirstWorker.value), LiveWorker(1, kSecondWorker.value)});
  ASSERT_TRUE(policies.Put(spec_));
  TableSpec other = CountingTable(ConsistencyMode::kSsp, ApplyMode::kAggregated, 1);
  other.id = TableId(2);
  other.name = "other";
  ASSERT_TRUE(rows_.AddTable(other));
  ASSERT_TRUE(policies.Put(other));
  const Key key = 7;
  const std::vector<float> row{4, 4};
  const auto gather = [&](TableId table, std::uint64_t sequence) -> Status {
    const TableSpec& spec = *rows_.FindTable(table);
    const PartitionId partition = PartitionOf(Positioner(spec, TableSalt(kJobSeed, spec.name))(key), kBits);
    clocks.Gather(Clock(0), {.table = table,
                             .partition = partition,
                             .incarnation = kFirstWorker,
                             .sequence = Sequence(sequence),
                             .count = 1,
                             .keys = Buffer::Copy(&key, sizeof key),
                             .values = Buffer::CopyOf(std::span<const float>(row)),
                             .bytes = 16});
    return clocks.CloseGathered(table, Clock(0));
  };
  ASSERT_TRUE(gather(TableId(2), 1));
  ASSERT_TRUE(gather(spec_.id, 2));
  EXPECT_TRUE(events_.closed.empty());
  ASSERT_TRUE(gather(TableId(2), 3));
  EXPECT_EQ(events_.closed, std::vector<Clock>{Clock(0)});
  EXPECT_EQ(rows_.Values(TableId(2), key).value()[0], -4.0f);
  EXPECT_EQ(Value(key), 0.0f);
  ASSERT_EQ(clocks.buckets().buckets().size(), 1u);
  EXPECT_EQ(clocks.buckets().buckets().begin()->second.contributions.size(), 1u);
}

}  // namespace
}  // namespace tarn::server
