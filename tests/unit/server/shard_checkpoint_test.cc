// Checkpoints: cut between two clocks (K1), at once (K2), reported until the order is gone (K3), loaded (K5), or only
// hashed (K6).
#include "tests/unit/server/shard_fixture.h"

namespace tarn::server {
namespace {

class ShardCheckpointTest : public ShardTest {
 protected:
  void Order(std::uint64_t id, bool at_clock, std::uint64_t clock, const std::string& directory) {
    view_.checkpoint = {CheckpointId(id), at_clock, Clock(clock), directory};
    NextView();
  }
  void ReportWritten() {
    ASSERT_EQ(written_.size(), 1u);
    shard_->OnCheckpointWritten(written_[0], now_, &out_);
    written_.clear();
  }
};

TEST_F(ShardCheckpointTest, K1CutsRightAfterTheClockBeforeHasClosed) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Order(1, true, 2, "ckpt-1");
  for (std::uint64_t clock = 0; clock < 4; ++clock) Deliver(PushOf(0, 10, 5, clock + 1, clock));
  Tick(0, 10, 1);
  EXPECT_TRUE(written_.empty());
  Tick(0, 10, 4);  // over the clock of the cut at once
  EXPECT_EQ(Value(5), -4.0f);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].max_clock, Clock(4));
  const Snapshot& snapshot = files_.Find("ckpt-1")->at(ShardId(0));
  ASSERT_EQ(RowCount(snapshot.tables), 1u);
  for (const PartitionRows& partition : snapshot.tables[0].partitions) EXPECT_EQ(partition.rows[0], -2.0f);
}

TEST_F(ShardCheckpointTest, K1CutsAtOnceIfTheClockIsThere) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Tick(0, 10, 2);
  Order(1, true, 2, "ckpt-1");
  EXPECT_EQ(written_.size(), 1u);
  NextView();  // the same order in a later view: not again
  EXPECT_EQ(written_.size(), 1u);
}

TEST_F(ShardCheckpointTest, K1WhatIsAppliedAtOnceWaitsForTheCutIfItBelongsBehindIt) {
  Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kImmediate));
  Deliver(PushOf(0, 10, 5, 1, 0));
  Order(1, true, 1, "ckpt-1");
  Tick(0, 10, 1);
  out_.clear();
  Deliver(PushOf(0, 10, 5, 2, 1));  // ahead of worker 1
  auto acks = Take<PushAck>();
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(acks[0].sections[0].code, ErrorCode::kOverloaded);
  Deliver(PushOf(0, 10, 5, 1, 0));  // repeated: acknowledged as ever
  EXPECT_EQ(Take<PushAck>()[0].sections[0].code, ErrorCode::kOk);
  Deliver(PushOf(1, 11, 5, 1, 0));
  Tick(1, 11, 1);
  ASSERT_EQ(written_.size(), 1u);
  for (const PartitionRows& partition : files_.Find("ckpt-1")->at(ShardId(0)).tables[0].partitions)
    for (float value : partition.rows) EXPECT_EQ(value, -2.0f);
  out_.clear();
  Deliver(PushOf(0, 10, 5, 2, 1));
  EXPECT_EQ(Take<PushAck>()[0].sections[0].code, ErrorCode::kOk);
  EXPECT_EQ(Value(5), -3.0f);
}

TEST_F(ShardCheckpointTest, K2CutsAtOnce) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  Deliver(PushOf(0, 10, 5, 1, 0));
  Order(1, false, 0, "ckpt-1");
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].state_hash, shard_->rows().StateHash());
}

TEST_F(ShardCheckpointTest, K3ThePartIsRepeatedUntilTheOrderIsGone) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  Order(1, false, 0, "ckpt-1");
  out_.clear();
  ReportWritten();
  auto parts = Take<CheckpointPart>();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].id, CheckpointId(1));
  EXPECT_EQ(parts[0].files.size(), 1u);
  shard_->OnTimer(shard_->NextTimer(), &out_);
  EXPECT_EQ(Take<CheckpointPart>().size(), 1u);
  view_.checkpoint = {};
  NextView();
  out_.clear();
  shard_->OnTimer(shard_->NextTimer(), &out_);
  EXPECT_TRUE(Take<CheckpointPart>().empty());
}

TEST_F(ShardCheckpointTest, K3AFailedPartSaysWhyAndStopsTheShard) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  files_.FailWrites({ErrorCode::kIo, "ckpt-1/shard-0.sst: No space left on device"});
  Order(1, false, 0, "ckpt-1");
  out_.clear();
  ReportWritten();
  ASSERT_EQ(out_.size(), 2u);
  const auto& part = std::get<CheckpointPart>(out_[0].message.body);
  EXPECT_EQ(part.code, ErrorCode::kIo);
  EXPECT_EQ(part.message, "ckpt-1/shard-0.sst: No space left on device");
  EXPECT_TRUE(shard_->stopped());
  EXPECT_EQ(shard_->stop_reason().code, ErrorCode::kIo);
}

TEST_F(ShardCheckpointTest, K5LoadsBeforeItConfirmsTheView) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  for (Key key = 0; key < 50; ++key) Deliver(PushOf(0, 10, KeyIn(key % 4, int(key / 4)), key / 4 + 1, 0));
  Order(1, false, 0, "ckpt-1");
  const std::uint64_t hash = shard_->rows().StateHash();
  const View first = view_;

  Shard resumed({.shard = ShardId(0), .nonce = 77}, store_.get());
  out_.clear();
  Welcome welcome;
  welcome.nonce = 77;
  welcome.incarnation = Incarnation(50);
  welcome.job_text = JobText();
  welcome.resume_directory = "ckpt-1";
  welcome.view = first;
  welcome.view.workers = {LiveWorker(0, 51, 9)};
  welcome.view.checkpoint = {};
  Message message;
  message.job = kJobFingerprint;
  message.sender.role = Role::kScheduler;
  message.body = welcome;
  resumed.Start(now_, &out_);
  resumed.OnMessage(kSchedulerPeer, message, now_, &out_);
  ASSERT_FALSE(resumed.stopped()) << resumed.stop_reason().reason;
  EXPECT_EQ(resumed.rows().StateHash(), hash);
  EXPECT_EQ(resumed.minimum_clock(), Clock(9));
  EXPECT_EQ(Take<Heartbeat>().size(), 1u);
}

TEST_F(ShardCheckpointTest, K5WhatCannotBeLoadedStopsTheShard) {
  Shard resumed({.shard = ShardId(0), .nonce = 77}, nullptr);
  Join({}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  shard_ = std::make_unique<Shard>(ShardOptions{.nonce = 77}, store_.get());
  shard_->Start(now_, &out_);
  out_.clear();
  SendWelcome("nowhere");
  EXPECT_TRUE(shard_->stopped());
  EXPECT_EQ(shard_->stop_reason().reason, "nowhere: no such checkpoint");
  EXPECT_TRUE(Take<Heartbeat>().empty());
}

TEST_F(ShardCheckpointTest, K6AnOrderWithoutADirectoryIsHashedOnly) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Deliver(PushOf(0, 10, 5, 1, 0));
  Order(1, true, 1, "");
  EXPECT_TRUE(Take<CheckpointPart>().empty());
  Tick(0, 10, 1);
  const auto parts = Take<CheckpointPart>();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].state_hash, shard_->rows().StateHash());
  EXPECT_TRUE(parts[0].files.empty());
  EXPECT_TRUE(written_.empty());
}

}  // namespace
}  // namespace tarn::server
