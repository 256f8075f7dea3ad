// Shows rules E2, E3, A1 and A2: a push is applied once, in order, or gathered; a refused push changes nothing; a
// replay of the log restores its effect.
#include "server/shard/pushes.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/unit/server/shard/part_fixture.h"

namespace tarn::server {
namespace {

constexpr Peer kPeer{kFirstAcceptedPeer + 1};

class PushesTest : public PartTest {
 protected:
  void Open(ApplyMode apply, std::size_t bucket_bytes_max = 1 << 20) {
    Open(CountingTable(ConsistencyMode::kSsp, apply, 5), bucket_bytes_max);
  }
  void Open(const TableSpec& spec, std::size_t bucket_bytes_max = 1 << 20) {
    AddTable(spec);
    pushes_.emplace(bucket_bytes_max, Pushes::Context{.rows = &rows_,
                                                      .clocks = &clocks_,
                                                      .policies = &policies_,
                                                      .lists = &lists_,
                                                      .outbox = &outbox_,
                                                      .stop = &stop_,
                                                      .counters = &counters_,
                                                      .observer = &events_,
                                                      .may_apply = [this](Clock clock) { return clock < cut_; },
                                                      .may_accept = [this](Clock clock) { return clock < last_; }});
  }
  Expected<bool> OnPush(const Message& message) {
    return pushes_->OnPush(kPeer, message.sender, std::get<Push>(message.body), Member(message.sender.incarnation));
  }
  // The acknowledged section of the last push.
  SectionAck TakeSection() { return Take<PushAck>().at(0).sections.at(0); }
  static LoggedPush LoggedOf(const Message& message) {
    return {message.sender.incarnation, WorkerRank(message.sender.rank), std::get<Push>(message.body).clock,
            PartOf<Push>(message)};
  }
  std::optional<Pushes> pushes_;
  Clock cut_{100}, last_{100};
};

TEST_F(PushesTest, IsAppliedOnceAndInOrder) {
  Open(ApplyMode::kImmediate);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 0)), true);
  EXPECT_EQ(TakeSection().code, ErrorCode::kOk);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 0)), false);
  EXPECT_EQ(TakeSection().code, ErrorCode::kOk) << "acknowledged again";
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 3, 0)), false);
  const SectionAck beyond = TakeSection();
  EXPECT_EQ(beyond.code, ErrorCode::kOutOfOrder);
  EXPECT_EQ(beyond.expected, Sequence(2));
  EXPECT_EQ(Value(7), -1.0f);
  EXPECT_EQ(events_.applied, std::vector<Sequence>{Sequence(1)});
  EXPECT_EQ(Member(kFirstWorker).pushed, Clock(1));
  EXPECT_EQ(counters_.pushes, 1u);
  EXPECT_EQ(counters_.pushes_repeated, 1u);
  EXPECT_EQ(counters_.pushes_out_of_order, 1u);
}

// Rule A8.
TEST_F(PushesTest, AssignsAndDeletesRows) {
  Open(ApplyMode::kImmediate);
  Message assigned = PushOf(kFirstWorker, 7, 1, 0, 5), deleted = PushOf(kFirstWorker, 7, 3, 0);
  PartOf<Push>(assigned).action = PushAction::kAssign;
  PartOf<Push>(deleted).action = PushAction::kDelete;
  PartOf<Push>(deleted).values = {};
  EXPECT_EQ(OnPush(assigned), true);
  EXPECT_EQ(Value(7), 5.0f);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 2, 0)), true);
  EXPECT_EQ(Value(7), 4.0f);
  EXPECT_EQ(OnPush(assigned), false);
  EXPECT_EQ(Value(7), 4.0f) << "a repetition";
  EXPECT_EQ(OnPush(deleted), true);
  EXPECT_EQ(Value(7), 0.0f);
  EXPECT_EQ(rows_.row_count(), 0u);
  EXPECT_EQ(rows_.Find(PartitionOfKey(7))->VersionOf(spec_.id), Version(3));
}

TEST_F(PushesTest, RefusesInvalidAssignmentsAndDeletions) {
  TableSpec dense = CountingTable(ConsistencyMode::kSsp, ApplyMode::kImmediate, 5);
  dense.kind = TableKind::kDense;
  dense.rows = 10;
  Open(dense);
  Message message = PushOf(kFirstWorker, 7, 1, 0);
  PushPart& push = PartOf<Push>(message);
  push.action = PushAction::kAssign;
  push.codec = ValueCodec::kBf16;
  EXPECT_EQ(OnPush(message).error().code, ErrorCode::kMalformed) << "not in fp32";
  push.codec = ValueCodec::kFp32;
  push.pulled = ValueCodec::kFp32;
  EXPECT_EQ(OnPush(message).error().code, ErrorCode::kMalformed) << "with pulled rows";
  push.pulled.reset();
  push.action = PushAction::kDelete;
  EXPECT_EQ(OnPush(message).error().message,
            "table '" + dense.name + "': rows of a dense table cannot be deleted; assign their values");
  push.action = PushAction::kAssign;
  EXPECT_EQ(OnPush(message), true);
  EXPECT_EQ(Value(7), 1.0f);
}

TEST_F(PushesTest, ADeletionWithValuesIsRefused) {
  Open(ApplyMode::kImmediate);
  Message message = PushOf(kFirstWorker, 7, 1, 0);
  PartOf<Push>(message).action = PushAction::kDelete;
  EXPECT_EQ(OnPush(message).error().code, ErrorCode::kMalformed);
}

TEST_F(PushesTest, RaisesTheVersionOfItsPartitionOnce) {
  Open(ApplyMode::kImmediate);
  const auto version = [&] { return rows_.Find(PartitionOfKey(7))->VersionOf(spec_.id); };
  Message first = PushOf(kFirstWorker, 7, 1, 0), second = PushOf(kSecondWorker, 7, 1, 0);
  PartOf<Push>(first).keys.sections[0].version = Version(0);
  PartOf<Push>(second).keys.sections[0].version = Version(0);
  EXPECT_EQ(OnPush(first), true);
  EXPECT_EQ(version(), Version(1));
  EXPECT_EQ(OnPush(first), false);
  EXPECT_EQ(version(), Version(1)) << "a repetition";
  EXPECT_EQ(OnPush(second), true);
  EXPECT_EQ(version(), Version(2));
  EXPECT_EQ(rows_.delays().histogram(), (std::vector<std::uint64_t>{1, 1}))
      << "the second was pulled one section before";
  const MetricList by_worker = rows_.delays().ByWorker();
  std::vector<std::pair<std::string, double>> counters;
  for (const Counter& counter : by_worker.ToCounters()) counters.emplace_back(counter.name, counter.value);
  EXPECT_EQ(counters, (std::vector<std::pair<std::string, double>>{{"gradient_delay_sum.0", 0},
                                                                   {"gradient_delay_sum.1", 1},
                                                                   {"gradient_delay_count.0", 1},
                                                                   {"gradient_delay_count.1", 1}}));
}

TEST_F(PushesTest, AClosedClockCountsAsOneSectionWithTheLargestDelay) {
  Open(ApplyMode::kAggregated);
  rows_.LoadState(spec_.id, PartitionOfKey(7), {Version(5), {}}).value();
  Message first = PushOf(kFirstWorker, 7, 1, 0), second = PushOf(kSecondWorker, 7, 1, 0);
  PartOf<Push>(first).keys.sections[0].version = Version(5);
  PartOf<Push>(second).keys.sections[0].version = Version(3);
  EXPECT_EQ(OnPush(first), true);
  EXPECT_EQ(OnPush(second), true);
  EXPECT_EQ(rows_.Find(PartitionOfKey(7))->VersionOf(spec_.id), Version(5)) << "gathered";
  Tick(kFirstWorker, 1);
  Tick(kSecondWorker, 1);
  ASSERT_TRUE(clocks_.CloseReady());
  EXPECT_EQ(rows_.Find(PartitionOfKey(7))->VersionOf(spec_.id), Version(6));
  EXPECT_EQ(rows_.delays().histogram(), (std::vector<std::uint64_t>{0, 0, 1}));
  EXPECT_TRUE(rows_.delays().ByWorker().ToCounters().empty()) << "a sum is of no worker";
}

TEST_F(PushesTest, HasPulledRowsIfItsRuleNeedsThem) {
  TableSpec spec = CountingTable(ConsistencyMode::kSsp, ApplyMode::kImmediate, 5);
  spec.optimizer.kind = "dc_asgd";
  Open(spec);
  Message message = PushOf(kFirstWorker, 7, 1, 0);
  const auto without = OnPush(message);
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(without.error().message, "table 't': a push without the rows as they were pulled, which dc_asgd needs");
  PartOf<Push>(message).pulled = ValueCodec::kFp32;
  EXPECT_EQ(OnPush(message).error().code, ErrorCode::kMalformed) << "too few bytes";
  const float values[] = {2, 2, -1, -1};  // the gradient, then the row as it was pulled
  PartOf<Push>(message).values = Buffer::CopyOf(std::span<const float>(values));
  EXPECT_EQ(OnPush(message), true);
  EXPECT_FLOAT_EQ(Value(7), -(2 + 0.04f * 4 * 1));
}

TEST_F(PushesTest, HasNoPulledRowsOtherwise) {
  Open(ApplyMode::kImmediate);
  Message message = PushOf(kFirstWorker, 7, 1, 0);
  PartOf<Push>(message).pulled = ValueCodec::kFp32;
  const auto refused = OnPush(message);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMalformed);
  EXPECT_EQ(refused.error().message, "table 't': pulled rows with a push, which sgd does not need");
}

TEST_F(PushesTest, OfAnAggregatedTableWaitsForItsClock) {
  Open(ApplyMode::kAggregated);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 0)), true);
  EXPECT_EQ(TakeSection().code, ErrorCode::kOk);
  EXPECT_EQ(Value(7), 0.0f);
  EXPECT_EQ(clocks_.buckets().buckets().size(), 1u);
  Tick(kFirstWorker, 2);
  Tick(kSecondWorker, 2);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 2, 1)), true);
  EXPECT_EQ(TakeSection().code, ErrorCode::kOk);
  EXPECT_EQ(events_.voided, std::vector<Sequence>{Sequence(2)}) << "its clock has closed";
}

TEST_F(PushesTest, APushOfAClockAfterACutIsRefusedUntilTheCut) {
  Open(ApplyMode::kImmediate);
  cut_ = Clock(3);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 3)), false);
  EXPECT_EQ(TakeSection().code, ErrorCode::kOverloaded);
  EXPECT_EQ(rows_.Find(PartitionOfKey(7))->watermarks().Of(kFirstWorker), Sequence(0));
  cut_ = Clock(4);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 3)), true);
}

TEST_F(PushesTest, K12APushThatTheLastCheckpointWouldLackIsRefused) {
  Open(ApplyMode::kAggregated);
  last_ = Clock(0);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 0)), false);
  EXPECT_EQ(TakeSection().code, ErrorCode::kOverloaded);
  EXPECT_FALSE(stop_.stopped()) << "it fits when the order is withdrawn";
  last_ = Clock(1);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 0)), true);
}

TEST_F(PushesTest, APushBeyondTheBucketLimitIsRefusedAndEndsTheShardIfTheNextClockNeedsIt) {
  Open(ApplyMode::kAggregated, 20);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 1)), true);
  EXPECT_EQ(OnPush(PushOf(kSecondWorker, 7, 1, 1)), false);
  EXPECT_EQ(Take<PushAck>().back().sections[0].code, ErrorCode::kOverloaded);
  EXPECT_FALSE(stop_.stopped());
  EXPECT_EQ(OnPush(PushOf(kSecondWorker, 7, 1, 0)), false);
  EXPECT_TRUE(stop_.stopped());
  EXPECT_EQ(stop_.reason().code, ErrorCode::kTooLarge);
  EXPECT_TRUE(Take<PushAck>().empty());
}

TEST_F(PushesTest, ABackupWorkerMayBeRefusedBeforeTheShardEnds) {
  TableSpec spec = CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated);
  spec.consistency.backup_workers = 1;
  Open(spec, 20);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 1)), true);
  EXPECT_EQ(OnPush(PushOf(kSecondWorker, 7, 1, 0)), false);
  EXPECT_EQ(OnPush(PushOf(kSecondWorker, 7, 1, 0)), false) << "repeated";
  EXPECT_EQ(Take<PushAck>().back().sections[0].code, ErrorCode::kOverloaded);
  EXPECT_FALSE(stop_.stopped()) << "the clock closes with the ticks of the other workers";
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 2, 0)), false);
  EXPECT_TRUE(stop_.stopped());
}

TEST_F(PushesTest, WithoutOtherWorkersThanBackupWorkersARefusedPushEndsTheShard) {
  TableSpec spec = CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated);
  spec.consistency.backup_workers = 1;
  Open(spec, 20);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 1)), true);
  WorkerEntry ended = LiveWorker(1, kSecondWorker.value);
  ended.state = WorkerState::kEnded;
  clocks_.Adopt({LiveWorker(0, kFirstWorker.value), ended});
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 2, 0)), false);
  EXPECT_TRUE(stop_.stopped());
}

TEST_F(PushesTest, AnInvalidPushIsRefused) {
  Open(ApplyMode::kImmediate);
  Message unknown = PushOf(kFirstWorker, 7, 1, 0);
  PartOf<Push>(unknown).table = TableId(9);
  EXPECT_EQ(OnPush(unknown).error().code, ErrorCode::kNotFound);
  Message short_values = PushOf(kFirstWorker, 7, 1, 0);
  PartOf<Push>(short_values).values = Buffer::Allocate(4);
  EXPECT_EQ(OnPush(short_values).error().code, ErrorCode::kMalformed);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, limits::kClocksAheadMax + 1)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(rows_.row_count(), 0u);
  EXPECT_TRUE(out_.empty());
}

TEST_F(PushesTest, AReplayAppliesIt) {
  Open(ApplyMode::kImmediate);
  ASSERT_TRUE(pushes_->Replay(LoggedOf(PushOf(kFirstWorker, 7, 1, 0))));
  EXPECT_EQ(Value(7), -1.0f);
  EXPECT_EQ(rows_.Find(PartitionOfKey(7))->watermarks().Of(kFirstWorker), Sequence(1));
  EXPECT_EQ(pushes_->Replay(LoggedOf(PushOf(kFirstWorker, 7, 3, 0))).error().code, ErrorCode::kCorrupt)
      << "the second is missing";
  EXPECT_TRUE(out_.empty()) << "a replay answers nobody";
}

TEST_F(PushesTest, AReplayGathersItForItsClock) {
  Open(ApplyMode::kAggregated);
  ASSERT_TRUE(pushes_->Replay(LoggedGathered{LoggedOf(PushOf(kFirstWorker, 7, 4, 2))}));
  ASSERT_EQ(clocks_.buckets().buckets().size(), 1u);
  EXPECT_EQ(clocks_.buckets().First(), Clock(2));
  EXPECT_EQ(rows_.Find(PartitionOfKey(7))->watermarks().Of(kFirstWorker), Sequence(0)) << "the head has those";
  LoggedPush unknown = LoggedOf(PushOf(kFirstWorker, 7, 5, 2));
  unknown.incarnation = Incarnation(99);
  EXPECT_EQ(pushes_->Replay(LoggedGathered{unknown}).error().code, ErrorCode::kCorrupt);
}

// Pushes of one key of each of two tables: the first of them is applied at once.
class TwoTablePushesTest : public PushesTest {
 protected:
  void OpenTwo(ApplyMode second, std::size_t bucket_bytes_max = 1 << 20) {
    Open(ApplyMode::kImmediate, bucket_bytes_max);
    tables_[0] = spec_;
    tables_[1] = CountingTable(ConsistencyMode::kSsp, second, 5);
    tables_[1].id = TableId(2);
    tables_[1].name = "other";
    AddTable(tables_[1]);
  }
  Message PushOfTwo(std::uint64_t first, std::uint64_t second, std::uint64_t clock = 0) {
    const std::uint64_t sequences[] = {first, second};
    Message of_table[2];
    for (const std::size_t i : {0, 1}) {
      spec_ = tables_[i];
      while (PartitionOfKey(keys_[i]) != partitions_[i]) ++keys_[i];
      of_table[i] = PushOf(kFirstWorker, keys_[i], sequences[i], clock);
    }
    return Joined<Push>(of_table[0], of_table[1]);
  }
  // The sections of the only acknowledgement.
  std::vector<SectionAck> TakeBoth() {
    const auto acks = Take<PushAck>();
    EXPECT_EQ(acks.size(), 1u);
    EXPECT_EQ(acks.at(0).sections.size(), 2u);
    for (const std::size_t i : {0, 1}) EXPECT_EQ(acks[0].sections.at(i).partition, partitions_[i]);
    return acks[0].sections;
  }
  float ValueIn(std::size_t i) const { return rows_.Values(tables_[i].id, keys_[i]).value()[0]; }
  Sequence WatermarkIn(std::size_t i) { return rows_.Find(partitions_[i])->watermarks().Of(kFirstWorker); }

  TableSpec tables_[2];
  PartitionId partitions_[2] = {PartitionId(0), PartitionId(1)};
  Key keys_[2] = {0, 0};
};

TEST_F(TwoTablePushesTest, AreAppliedOnceAndAcknowledgedTogether) {
  OpenTwo(ApplyMode::kImmediate);
  for (int again = 0; again < 3; ++again) {
    EXPECT_EQ(OnPush(PushOfTwo(1, 1)), again == 0);
    for (const SectionAck& section : TakeBoth()) EXPECT_EQ(section.code, ErrorCode::kOk);
    for (const std::size_t i : {0, 1}) {
      EXPECT_EQ(ValueIn(i), -1.0f);
      EXPECT_EQ(WatermarkIn(i), Sequence(1));
    }
  }
  EXPECT_EQ(events_.taken, std::vector<std::size_t>{0});
  EXPECT_EQ(counters_.pushes, 2u);
  EXPECT_EQ(counters_.pushes_repeated, 4u);
}

TEST_F(TwoTablePushesTest, AreRefusedWholeIfATableIsUnknown) {
  OpenTwo(ApplyMode::kImmediate);
  Message push = PushOfTwo(1, 1);
  PartOf<Push>(push, 0).keys.list = 3;
  PartOf<Push>(push, 1).table = TableId(9);
  EXPECT_EQ(OnPush(push).error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(out_.empty());
  EXPECT_EQ(rows_.row_count(), 0u);
  EXPECT_EQ(lists_.size(), 0u);
  EXPECT_TRUE(events_.taken.empty());
  for (const std::size_t i : {0, 1}) EXPECT_EQ(WatermarkIn(i), Sequence(0));
}

TEST_F(TwoTablePushesTest, OnlyTheTableInOrderIsApplied) {
  OpenTwo(ApplyMode::kImmediate);
  EXPECT_EQ(OnPush(PushOfTwo(2, 1)), true);
  const auto acks = TakeBoth();
  EXPECT_EQ(acks[0].code, ErrorCode::kOutOfOrder);
  EXPECT_EQ(acks[0].expected, Sequence(1));
  EXPECT_EQ(acks[1].code, ErrorCode::kOk);
  EXPECT_EQ(ValueIn(0), 0.0f);
  EXPECT_EQ(ValueIn(1), -1.0f);
  EXPECT_EQ(events_.taken, std::vector<std::size_t>{1}) << "counted over the sections of both";
  EXPECT_EQ(OnPush(PushOfTwo(1, 1)), true);
  for (const SectionAck& section : TakeBoth()) EXPECT_EQ(section.code, ErrorCode::kOk);
  for (const std::size_t i : {0, 1}) {
    EXPECT_EQ(ValueIn(i), -1.0f);
    EXPECT_EQ(WatermarkIn(i), Sequence(1));
  }
}

TEST_F(TwoTablePushesTest, HaveSuccessiveNumbersInOnePartition) {
  partitions_[1] = partitions_[0];
  OpenTwo(ApplyMode::kImmediate);
  EXPECT_EQ(OnPush(PushOfTwo(1, 2)), true);
  for (const SectionAck& section : TakeBoth()) EXPECT_EQ(section.code, ErrorCode::kOk);
  EXPECT_EQ(OnPush(PushOfTwo(1, 2)), false);
  for (const std::size_t i : {0, 1}) EXPECT_EQ(ValueIn(i), -1.0f);
  EXPECT_EQ(WatermarkIn(0), Sequence(2));
}

TEST_F(TwoTablePushesTest, AreAppliedOrGatheredByTable) {
  OpenTwo(ApplyMode::kAggregated);
  EXPECT_EQ(OnPush(PushOfTwo(1, 1)), true);
  for (const SectionAck& section : TakeBoth()) EXPECT_EQ(section.code, ErrorCode::kOk);
  EXPECT_EQ(ValueIn(0), -1.0f);
  EXPECT_EQ(ValueIn(1), 0.0f);
  EXPECT_EQ(clocks_.buckets().buckets().size(), 1u);
}

TEST_F(TwoTablePushesTest, EachTableWithoutRoomIsRefusedAlone) {
  OpenTwo(ApplyMode::kAggregated, 20);
  EXPECT_EQ(OnPush(PushOfTwo(1, 1, 1)), true);
  const auto acks = TakeBoth();
  EXPECT_EQ(acks[0].code, ErrorCode::kOk);
  EXPECT_EQ(acks[1].code, ErrorCode::kOverloaded);
  EXPECT_EQ(ValueIn(0), -1.0f);
  EXPECT_EQ(WatermarkIn(1), Sequence(0));
  EXPECT_FALSE(stop_.stopped());
}

}  // namespace
}  // namespace tarn::server
