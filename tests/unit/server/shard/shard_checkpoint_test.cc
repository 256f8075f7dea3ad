// Shows a shard's checkpoints: cut between two clocks (K1) or at once (K2), reported until the order is withdrawn (K3),
// loaded (K5), only hashed (K6), and incremental (K7).
#include <bit>
#include <map>

#include "core/hash.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

class ShardCheckpointTest : public ShardTest {
 protected:
  void Order(std::uint64_t id, bool at_clock, std::uint64_t clock, const std::string& directory) {
    view_.checkpoint = {CheckpointId(id), at_clock, Clock(clock), directory, {}, {}, directory.empty()};
    NextView();
  }
  void ReportWritten() {
    ASSERT_EQ(written_.size(), 1u);
    shard_->OnCheckpointWritten(written_[0], now_, &out_);
    written_.clear();
  }
};

TEST_F(ShardCheckpointTest, K1CutsRightAfterThePreviousClockHasClosed) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Order(1, true, 2, "ckpt-1");
  for (std::uint64_t clock = 0; clock < 4; ++clock) Deliver(PushOf(0, 10, 5, clock + 1, clock));
  Tick(0, 10, 1);
  EXPECT_TRUE(written_.empty());
  Tick(0, 10, 4);  // past the clock of the cut in one jump
  EXPECT_EQ(Value(5), -4.0f);
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].max_clock, Clock(4));
  const Snapshot& snapshot = *files_.Newest("ckpt-1").at(ShardId(0));
  ASSERT_EQ(RowCount(snapshot.tables), 1u);
  for (const PartitionRows& partition : snapshot.tables[0].partitions)
    EXPECT_EQ(std::bit_cast<float>(partition.rows[0]), -2.0f);
}

TEST_F(ShardCheckpointTest, K1CutsAtOnceIfTheClockIsOpen) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Tick(0, 10, 2);
  Order(1, true, 2, "ckpt-1");
  EXPECT_EQ(written_.size(), 1u);
  NextView();  // the same order in a later view: not again
  EXPECT_EQ(written_.size(), 1u);
}

TEST_F(ShardCheckpointTest, K1ImmediatePushesOfClocksAfterTheCutWaitForIt) {
  Join({LiveWorker(0, 10), LiveWorker(1, 11)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kImmediate));
  Deliver(PushOf(0, 10, 5, 1, 0));
  Order(1, true, 1, "ckpt-1");
  Tick(0, 10, 1);
  out_.clear();
  Deliver(PushOf(0, 10, 5, 2, 1));  // ahead of worker 1
  auto acks = Take<PushAck>();
  ASSERT_EQ(acks.size(), 1u);
  EXPECT_EQ(acks[0].sections[0].code, ErrorCode::kOverloaded);
  Deliver(PushOf(0, 10, 5, 1, 0));  // repeated: acknowledged again
  EXPECT_EQ(Take<PushAck>()[0].sections[0].code, ErrorCode::kOk);
  Deliver(PushOf(1, 11, 5, 1, 0));
  Tick(1, 11, 1);
  ASSERT_EQ(written_.size(), 1u);
  for (const PartitionRows& partition : files_.Newest("ckpt-1").at(ShardId(0))->tables[0].partitions)
    for (std::uint32_t word : partition.rows) EXPECT_EQ(std::bit_cast<float>(word), -2.0f);
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
  EXPECT_EQ(written_[0].state_hash, shard_->rows().StateHash().value());
}

// Slices of one row: pushes between them are not in the checkpoint.
TEST_F(ShardCheckpointTest, K2PushesGoOnBetweenTheSlicesOfACut) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate),
       {.cut_slice_bytes = 1, .cut_pause_us = 10});
  std::map<PartitionId, std::uint64_t> sequences;
  auto push = [&](Key key) { Deliver(PushOf(0, 10, key, ++sequences[PartitionOfKey(key)], 0)); };
  for (Key key = 0; key < 200; ++key) push(key);
  const std::uint64_t hash = shard_->rows().StateHash().value();
  Order(1, false, 0, "ckpt-1");
  SplitMix random(5);
  std::size_t slices = 0;
  for (; written_.empty(); ++slices) {
    ASSERT_LT(slices, 1000u);
    push(random.Below(400));
    out_.clear();
    shard_->OnTimer(now_, &out_);  // before the pause is over: nothing
    ASSERT_EQ(shard_->NextTimer(), now_ + 10);
    shard_->OnTimer(now_ += 10, &out_);
  }
  EXPECT_GT(slices, 40u);
  EXPECT_GT(shard_->NextTimer(), now_ + 10);
  EXPECT_EQ(written_[0].state_hash, hash);
  const Snapshot& snapshot = *files_.Newest("ckpt-1").at(ShardId(0));
  EXPECT_EQ(RowCount(snapshot.tables), 200u);
  EXPECT_EQ(StateHash(snapshot.tables), hash);
  for (const PartitionRows& partition : snapshot.tables[0].partitions)
    for (std::uint32_t word : partition.rows) EXPECT_EQ(std::bit_cast<float>(word), -1.0f);
  EXPECT_NE(shard_->rows().StateHash().value(), hash);
}

TEST_F(ShardCheckpointTest, K1ClocksCloseBetweenTheSlicesOfACut) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated), {.cut_slice_bytes = 1});
  for (std::uint64_t clock = 0; clock < 2; ++clock)
    for (std::uint32_t partition = 0; partition < 4; ++partition)
      Deliver(PushOf(0, 10, KeyIn(partition), clock + 1, clock));
  Order(1, true, 1, "ckpt-1");
  Tick(0, 10, 2);  // closes 0, cuts, closes 1
  EXPECT_TRUE(written_.empty());
  EXPECT_EQ(Value(KeyIn(3)), -2.0f);
  for (int slice = 0; slice < 50 && written_.empty(); ++slice) shard_->OnTimer(now_, &out_);
  ASSERT_EQ(written_.size(), 1u);
  for (const PartitionRows& partition : files_.Newest("ckpt-1").at(ShardId(0))->tables[0].partitions)
    for (std::uint32_t word : partition.rows) EXPECT_EQ(std::bit_cast<float>(word), -1.0f);
}

TEST_F(ShardCheckpointTest, WithdrawingAnOrderEndsItsCut) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate), {.cut_slice_bytes = 1});
  for (std::uint32_t partition = 0; partition < 4; ++partition) Deliver(PushOf(0, 10, KeyIn(partition), 1, 0));
  Order(1, false, 0, "ckpt-1");
  EXPECT_TRUE(shard_->rows().cut().active());
  Order(2, false, 0, "ckpt-2");
  ASSERT_EQ(written_.size(), 1u);
  EXPECT_EQ(written_[0].code, ErrorCode::kCancelled);
  for (int slice = 0; slice < 50 && written_.size() < 2; ++slice) shard_->OnTimer(now_, &out_);
  ASSERT_EQ(written_.size(), 2u);
  EXPECT_EQ(written_[1].id, CheckpointId(2));
  EXPECT_EQ(written_[1].code, ErrorCode::kOk);
  EXPECT_EQ(files_.Find("ckpt-1"), nullptr);
  // Until the store reports its end, heartbeats name the first checkpoint as being written.
  auto writing = [this] {
    out_.clear();
    NextView();
    return Take<Heartbeat>().at(0).writing;
  };
  EXPECT_EQ(writing(), CheckpointId(1));
  shard_->OnCheckpointWritten(written_[0], now_, &out_);
  EXPECT_EQ(writing(), CheckpointId(2));
  EXPECT_FALSE(shard_->stopped());
  Order(3, false, 0, "ckpt-3");
  view_.checkpoint = {};
  NextView();
  EXPECT_FALSE(shard_->rows().cut().active());
}

TEST_F(ShardCheckpointTest, K6TheHashIsThatOfTheCut) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate), {.cut_slice_bytes = 1});
  for (std::uint32_t partition = 0; partition < 4; ++partition) Deliver(PushOf(0, 10, KeyIn(partition), 1, 0));
  const std::uint64_t hash = shard_->rows().StateHash().value();
  Order(1, false, 0, "");
  std::vector<CheckpointPart> parts;
  for (std::uint64_t i = 0; i < 50 && parts.empty(); ++i) {
    Deliver(PushOf(0, 10, KeyIn(3), i + 2, 0));
    shard_->OnTimer(now_, &out_);
    parts = Take<CheckpointPart>();
  }
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].state_hash, hash);
  EXPECT_NE(shard_->rows().StateHash().value(), hash);
}

// Orders the checkpoints of a chain and returns the shard's part of each.
class ShardChainTest : public ShardCheckpointTest {
 protected:
  void SetUp() override { Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate)); }
  void Push(Key key) { Deliver(PushOf(0, 10, key, ++sequences_[PartitionOfKey(key)], 0)); }
  CheckpointPart Cut(std::uint64_t id, std::uint64_t base, bool whole_hash = false) {
    const std::string from = base == 0 ? "" : "ckpt-" + std::to_string(base);
    view_.checkpoint = {CheckpointId(id),   false, Clock(0),  "ckpt-" + std::to_string(id),
                        CheckpointId(base), from,  whole_hash};
    out_.clear();
    NextView();
    for (CheckpointPart& part : std::exchange(written_, {})) shard_->OnCheckpointWritten(std::move(part), now_, &out_);
    const auto parts = Take<CheckpointPart>();
    return parts.empty() ? CheckpointPart{.code = ErrorCode::kInternal} : parts.back();
  }
  std::uint64_t Rows(std::uint64_t id) {
    return RowCount(files_.Newest("ckpt-" + std::to_string(id)).at(ShardId(0))->tables);
  }
  std::map<PartitionId, std::uint64_t> sequences_;
};

TEST_F(ShardChainTest, K7AnIncrementHoldsTheChangesSinceItsBase) {
  for (Key key = 0; key < 20; ++key) Push(key);
  EXPECT_EQ(Cut(1, 0).code, ErrorCode::kOk);
  EXPECT_EQ(Rows(1), 20u);
  Push(3);
  Push(30);
  EXPECT_EQ(Cut(2, 1).code, ErrorCode::kOk);
  EXPECT_EQ(Rows(2), 2u);
  EXPECT_EQ(files_.Find("ckpt-2")->size(), 2u);  // its own and the base's
  EXPECT_EQ(Cut(3, 2).code, ErrorCode::kOk);
  EXPECT_EQ(Rows(3), 0u);
  Push(4);
  Push(5);
  EXPECT_EQ(Cut(4, 0).code, ErrorCode::kOk);
  EXPECT_EQ(Rows(4), 21u);
}

TEST_F(ShardChainTest, K7ChangesOfAnIncompleteCheckpointAreInTheNext) {
  for (Key key = 0; key < 20; ++key) Push(key);
  Cut(1, 0);
  Push(3);
  Cut(2, 1);  // did not become whole
  Push(4);
  EXPECT_EQ(Cut(3, 1).code, ErrorCode::kOk);
  EXPECT_EQ(Rows(3), 2u);
  Push(5);
  Cut(4, 0);  // neither did this full one
  Push(6);
  EXPECT_EQ(Cut(5, 3).code, ErrorCode::kOk);
  EXPECT_EQ(Rows(5), 4u);  // since 1: the shard was not told that 3 is complete, and more rows do no harm
}

TEST_F(ShardChainTest, K7ReportsTheHashOfAllRowsOnRequest) {
  for (Key key = 0; key < 20; ++key) Push(key);
  const CheckpointPart full = Cut(1, 0);
  EXPECT_EQ(full.whole_hash, shard_->rows().StateHash().value());
  Push(3);
  EXPECT_FALSE(Cut(2, 1).whole_hash);
  Push(4);
  const CheckpointPart part = Cut(3, 2, true);
  EXPECT_EQ(part.whole_hash, shard_->rows().StateHash().value());
  EXPECT_NE(part.state_hash, *part.whole_hash);
  EXPECT_EQ(Rows(3), 1u);
}

TEST_F(ShardChainTest, K7AMissingOrUnknownBaseDoesNotStopTheShard) {
  Push(1);
  EXPECT_EQ(Cut(7, 6).code, ErrorCode::kNotFound);  // no cut or load before, so changes are not known
  EXPECT_FALSE(shard_->stopped());
  Cut(8, 0);
  files_.Remove("ckpt-8");
  EXPECT_EQ(Cut(9, 8).code, ErrorCode::kNotFound);
  EXPECT_FALSE(shard_->stopped());
  EXPECT_EQ(Cut(10, 0).code, ErrorCode::kOk);
  Push(2);
  EXPECT_EQ(Cut(11, 10).code, ErrorCode::kOk);
  EXPECT_EQ(Rows(11), 1u);
  EXPECT_EQ(Cut(12, 3).code, ErrorCode::kNotFound);
}

TEST_F(ShardChainTest, K7AfterTooManyRemovedRowsOnlyAFullCutSucceeds) {
  constexpr std::uint64_t kRemembered = 3;  // of a partition
  TableSpec spec = CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate);
  spec.life = {.on = true, .expire_clocks = 8, .sweep_clocks = 8};
  Join({LiveWorker(0, 10)}, spec, {.removed_keys_max = kRemembered << kBits});
  EXPECT_EQ(Cut(1, 0).code, ErrorCode::kOk);
  std::uint64_t clock = 0;
  int key = 0;
  const auto come_and_go = [&](std::uint64_t rows) {
    for (std::uint64_t i = 0; i < rows; ++i) Push(KeyIn(1, key++));
    Tick(0, 10, clock += 20);
    while (shard_->rows().expiry().sweeping()) {
      now_ = std::max(now_, shard_->NextTimer());
      shard_->OnTimer(now_, &out_);
    }
  };
  come_and_go(kRemembered);
  EXPECT_EQ(Cut(2, 1).code, ErrorCode::kOk);
  come_and_go(kRemembered + 1);
  const CheckpointPart part = Cut(3, 2);
  EXPECT_EQ(part.code, ErrorCode::kNotFound);
  EXPECT_EQ(part.message, "what changed since checkpoint 2 is not known");
  EXPECT_FALSE(shard_->stopped());
  EXPECT_EQ(Cut(4, 0).code, ErrorCode::kOk);
  come_and_go(1);
  EXPECT_EQ(Cut(5, 4).code, ErrorCode::kOk);
}

// A store that is full.
struct FullStore : MemoryCheckpointStore {
  using MemoryCheckpointStore::MemoryCheckpointStore;
  bool HasRoom() override { return room; }
  bool room = true;
};

TEST_F(ShardCheckpointTest, ACutWaitsForRoomInTheStore) {
  FullStore store(&files_, ShardId(0), [this](CheckpointPart part) { written_.push_back(std::move(part)); });
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  shard_ = std::make_unique<Shard>(ShardOptions{.nonce = 77, .cut_slice_bytes = 1}, &store);
  shard_->Start(now_, &out_);
  SendWelcome("");
  for (std::uint32_t partition = 0; partition < 4; ++partition) Deliver(PushOf(0, 10, KeyIn(partition), 1, 0));
  store.room = false;
  Order(1, false, 0, "ckpt-1");
  EXPECT_GT(shard_->NextTimer(), now_);  // the next heartbeat
  for (int i = 0; i < 50; ++i) shard_->OnTimer(now_, &out_);
  EXPECT_TRUE(written_.empty());
  store.room = true;
  EXPECT_LE(shard_->NextTimer(), now_);
  for (int slice = 0; slice < 50 && written_.empty(); ++slice) shard_->OnTimer(now_, &out_);
  EXPECT_EQ(written_.size(), 1u);
}

TEST_F(ShardCheckpointTest, K3ThePartIsRepeatedUntilTheOrderIsWithdrawn) {
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

TEST_F(ShardCheckpointTest, K3AFailedPartReportsItsReasonAndTheShardContinues) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  files_.FailWrites({ErrorCode::kIo, "ckpt-1/shard-0.sst: No space left on device"});
  Order(1, false, 0, "ckpt-1");
  out_.clear();
  ReportWritten();
  ASSERT_EQ(out_.size(), 1u);
  const auto& part = std::get<CheckpointPart>(out_[0].message.body);
  EXPECT_EQ(part.code, ErrorCode::kIo);
  EXPECT_EQ(part.message, "ckpt-1/shard-0.sst: No space left on device");
  EXPECT_FALSE(shard_->stopped());
  out_.clear();
  shard_->OnTimer(shard_->NextTimer(), &out_);
  EXPECT_EQ(Take<CheckpointPart>().size(), 1u) << "repeated until the order is gone";
  out_.clear();
  Deliver(PushOf(0, 10, 5, 1, 0));
  EXPECT_EQ(Take<PushAck>().size(), 1u);
  files_.FailWrites({ErrorCode::kOk, ""});
  Order(2, false, 0, "ckpt-2");
  out_.clear();
  ReportWritten();
  const auto next = Take<CheckpointPart>();
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].code, ErrorCode::kOk);
}

// Once a checkpoint has failed, no more of its rows are copied.
TEST_F(ShardCheckpointTest, K3AFailedPartEndsTheCut) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate), {.cut_slice_bytes = 1});
  for (std::uint32_t partition = 0; partition < 4; ++partition) Deliver(PushOf(0, 10, KeyIn(partition), 1, 0));
  Order(1, false, 0, "ckpt-1");
  ASSERT_TRUE(shard_->rows().cut().active());
  shard_->OnCheckpointWritten({.id = CheckpointId(1), .code = ErrorCode::kIo, .message = "ckpt-1: full"}, now_, &out_);
  EXPECT_FALSE(shard_->rows().cut().active());
  out_.clear();
  ReportWritten();  // the store reports the abandoned part once; the shard has already reported the failure
  EXPECT_TRUE(Take<CheckpointPart>().empty());
  shard_->OnTimer(shard_->NextTimer(), &out_);
  const auto parts = Take<CheckpointPart>();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].message, "ckpt-1: full");
}

TEST_F(ShardCheckpointTest, K5LoadsBeforeItConfirmsTheView) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  for (Key key = 0; key < 50; ++key) Deliver(PushOf(0, 10, KeyIn(key % 4, int(key / 4)), key / 4 + 1, 0));
  Order(1, false, 0, "ckpt-1");
  const std::uint64_t hash = shard_->rows().StateHash().value();
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
  resumed.OnMessage(kSchedulerPeer, Message(message), now_, &out_);
  ASSERT_FALSE(resumed.stopped()) << resumed.stop_reason().reason;
  EXPECT_EQ(resumed.rows().StateHash().value(), hash);
  EXPECT_EQ(resumed.minimum_clock(), Clock(9));
  EXPECT_EQ(Take<Heartbeat>().size(), 1u);
}

TEST_F(ShardCheckpointTest, K5ACheckpointThatCannotBeLoadedStopsTheShard) {
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

TEST_F(ShardCheckpointTest, K6AnOrderWithoutADirectoryIsOnlyHashed) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kBsp, ApplyMode::kAggregated));
  Deliver(PushOf(0, 10, 5, 1, 0));
  Order(1, true, 1, "");
  EXPECT_TRUE(Take<CheckpointPart>().empty());
  Tick(0, 10, 1);
  const auto parts = Take<CheckpointPart>();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].state_hash, shard_->rows().StateHash().value());
  EXPECT_TRUE(parts[0].files.empty());
  EXPECT_TRUE(written_.empty());
}

}  // namespace
}  // namespace tarn::server
