// Shows that a shard follows a policy that is not built in: the policy decides when pulls are answered and clocks
// close, and which pushes are discarded. And rule C8, with the built-in policy.
#include "server/clock/consistency_policy.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

// Backup workers (Chen et al., "Revisiting distributed synchronous SGD", 2016): of each clock the gradients of the
// first worker count, later ones are discarded, and pulls wait only for the clocks that have closed.
class FirstOnly final : public ConsistencyPolicy {
 public:
  using ConsistencyPolicy::ConsistencyPolicy;
  Clock WantedClock(Incarnation, Clock use, const Cohort&) const override { return use; }
  Clock OpenClock(const Cohort& cohort) const override { return cohort.maximum(); }
  bool Discards(Incarnation, Clock clock, const Cohort& cohort) const override { return clock < cohort.maximum(); }
  bool MayClose(Clock clock, std::span<const Contribution>, const Cohort& cohort) const override {
    return clock < cohort.maximum();
  }
  Count Choose(Clock clock, std::span<const Contribution> gathered, const Cohort& cohort) const override {
    Count count{.counts = {}, .divisor = 1};
    for (const Contribution& c : gathered) count.counts.push_back(cohort.members().at(c.incarnation).tick > clock);
    return count;
  }
};

std::unique_ptr<ConsistencyPolicy> MakeFirstOnly(const TableSpec& spec) { return std::make_unique<FirstOnly>(spec); }

class BackupWorkersTest : public ShardTest {
 protected:
  BackupWorkersTest() {
    static constexpr PolicyEntry kEntries[] = {{"bsp", MakeFirstOnly}};
    Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated),
         {.policies = kEntries});
    out_.clear();
  }
};

TEST_F(BackupWorkersTest, TheFirstWorkersPushCountsAndLaterOnesAreDiscarded) {
  Deliver(PushOf(1, 11, 7, 1, 0, 16.0f));
  Deliver(PushOf(0, 10, 7, 1, 0, 2.0f));
  Tick(0, 10, 1);
  out_.clear();
  EXPECT_EQ(Value(7), -2.0f) << "of the one that has finished the clock, divided by nobody";
  EXPECT_EQ(events_.voided, std::vector<Sequence>{Sequence(1)});
  Deliver(PushOf(1, 11, 7, 2, 0, 32.0f));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk) << "discarded, and acknowledged all the same";
  EXPECT_EQ(Value(7), -2.0f);
  EXPECT_EQ(events_.voided.size(), 2u);
}

TEST_F(BackupWorkersTest, PullsAreAnsweredOnceTheFirstWorkerHasFinished) {
  Deliver(PullOf(1, 11, 7, 1, 3));
  EXPECT_TRUE(Take<PullReply>().empty());
  Tick(0, 10, 1);
  EXPECT_EQ(Take<PullReply>().size(), 1u);
}

// Rule C8, by the built-in policy.
class LateWorkerTest : public ShardTest {
 protected:
  LateWorkerTest() {
    TableSpec table = CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated);
    table.consistency.backup_workers = 1;
    Join({LiveWorker(0, 10), LiveWorker(1, 11)}, table);
    out_.clear();
  }
};

TEST_F(LateWorkerTest, LateGradientsAreAcknowledgedDiscardedAndCounted) {
  Deliver(PushOf(0, 10, 7, 1, 0, 2.0f));
  Tick(0, 10, 1);
  EXPECT_EQ(Value(7), -2.0f);
  out_.clear();
  Deliver(PushOf(1, 11, 7, 1, 0, 16.0f));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
  EXPECT_EQ(Value(7), -2.0f);
  EXPECT_EQ(shard_->rows().counters().discarded, 1u);
  Deliver(PullOf(1, 11, 7, 1, 1));
  const auto replies = Take<PullReply>();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].min_clock, Clock(1)) << "where it goes on, though the minimum clock is 0";
  EXPECT_EQ(shard_->minimum_clock(), Clock(0));
}

TEST_F(LateWorkerTest, LateAssignmentsAreAppliedAtOnce) {
  Tick(0, 10, 1);
  out_.clear();
  Message assignment = PushOf(1, 11, 7, 1, 0, 5.0f);
  PartOf<Push>(assignment).action = PushAction::kAssign;
  Deliver(std::move(assignment));
  EXPECT_EQ(TakeAck().code, ErrorCode::kOk);
  EXPECT_EQ(Value(7), 5.0f);
  EXPECT_EQ(shard_->rows().counters().discarded, 0u);
}

}  // namespace
}  // namespace tarn::server
