// Rules E2, E3, A1, A2: a push is applied once, in order, or gathered; what is refused changes nothing; a log brings it
// back.
#include "server/shard/pushes.h"

#include <gtest/gtest.h>

#include "tests/unit/server/shard/part_fixture.h"

namespace tarn::server {
namespace {

constexpr Peer kPeer{kFirstAcceptedPeer + 1};

class PushesTest : public PartTest {
 protected:
  void Open(ApplyMode apply, std::size_t bucket_bytes_max = 1 << 20) {
    AddTable(CountingTable(ConsistencyMode::kSsp, apply, 5));
    pushes_.emplace(bucket_bytes_max, Pushes::Context{.rows = &rows_,
                                                      .clocks = &clocks_,
                                                      .policies = &policies_,
                                                      .lists = &lists_,
                                                      .outbox = &outbox_,
                                                      .stop = &stop_,
                                                      .counters = &counters_,
                                                      .observer = &events_,
                                                      .may_apply = [this](Clock clock) { return clock < cut_; }});
  }
  Expected<bool> OnPush(const Message& message) {
    return pushes_->OnPush(kPeer, std::get<Push>(message.body), message, Member(message.sender.incarnation));
  }
  // Of the last push.
  SectionAck TakeSection() { return Take<PushAck>().at(0).sections.at(0); }
  static LoggedPush LoggedOf(const Message& message) {
    return {message.sender.incarnation, WorkerRank(message.sender.rank), std::get<Push>(message.body), message.keys,
            message.values};
  }
  std::optional<Pushes> pushes_;
  Clock cut_{100};
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

TEST_F(PushesTest, ThatIsToComeBehindACutIsRefusedUntilThen) {
  Open(ApplyMode::kImmediate);
  cut_ = Clock(3);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 3)), false);
  EXPECT_EQ(TakeSection().code, ErrorCode::kOverloaded);
  EXPECT_EQ(rows_.Find(PartitionOfKey(7))->watermarks().Of(kFirstWorker), Sequence(0));
  cut_ = Clock(4);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, 3)), true);
}

TEST_F(PushesTest, BeyondTheRoomIsRefusedAndEndsTheShardIfTheClockThatClosesNextWaitsForIt) {
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

TEST_F(PushesTest, WhatIsNotSoundIsRefused) {
  Open(ApplyMode::kImmediate);
  Message unknown = PushOf(kFirstWorker, 7, 1, 0);
  std::get<Push>(unknown.body).table = TableId(9);
  EXPECT_EQ(OnPush(unknown).error().code, ErrorCode::kNotFound);
  Message short_values = PushOf(kFirstWorker, 7, 1, 0);
  short_values.values = Buffer::Allocate(4);
  EXPECT_EQ(OnPush(short_values).error().code, ErrorCode::kMalformed);
  EXPECT_EQ(OnPush(PushOf(kFirstWorker, 7, 1, limits::kClocksAheadMax + 1)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(rows_.row_count(), 0u);
  EXPECT_TRUE(out_.empty());
}

TEST_F(PushesTest, ALogBringsItBack) {
  Open(ApplyMode::kImmediate);
  ASSERT_TRUE(pushes_->Replay(LoggedOf(PushOf(kFirstWorker, 7, 1, 0))));
  EXPECT_EQ(Value(7), -1.0f);
  EXPECT_EQ(rows_.Find(PartitionOfKey(7))->watermarks().Of(kFirstWorker), Sequence(1));
  EXPECT_EQ(pushes_->Replay(LoggedOf(PushOf(kFirstWorker, 7, 3, 0))).error().code, ErrorCode::kCorrupt)
      << "the second is missing";
  EXPECT_TRUE(out_.empty()) << "a replay answers nobody";
}

TEST_F(PushesTest, AGatheredOneComesBackWithItsClock) {
  Open(ApplyMode::kAggregated);
  ASSERT_TRUE(pushes_->Replay(LoggedGathered{LoggedOf(PushOf(kFirstWorker, 7, 4, 2))}));
  ASSERT_EQ(clocks_.buckets().buckets().size(), 1u);
  EXPECT_EQ(clocks_.buckets().First(), Clock(2));
  EXPECT_EQ(rows_.Find(PartitionOfKey(7))->watermarks().Of(kFirstWorker), Sequence(0)) << "the head has those";
  LoggedPush unknown = LoggedOf(PushOf(kFirstWorker, 7, 5, 2));
  unknown.incarnation = Incarnation(99);
  EXPECT_EQ(pushes_->Replay(LoggedGathered{unknown}).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace tarn::server
