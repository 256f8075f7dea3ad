// Shows rules L1 and L4: without a log messages are sent at once; with one, messages that depend on the state are sent
// in order, once all earlier inputs are durable.
#include "server/shard/durable_outbox.h"

#include <gtest/gtest.h>

#include "sim/disks/memory_shard_log.h"

namespace tarn::server {
namespace {

constexpr Peer kPeer{kFirstAcceptedPeer + 1};
constexpr Incarnation kWorker(10);

class DurableOutboxTest : public testing::Test {
 protected:
  DurableOutboxTest() { step_.Begin(1, &out_); }
  void BeginLog() {
    ASSERT_TRUE(log_.Open({.run = 1, .job = 2, .shard = ShardId(0)}));
    outbox_.Begin(CheckpointId(0));
    outbox_.BeginSegment(CheckpointId(0), LoggedHead{});
    Sync();
    out_.clear();
  }
  void Sync() {
    log_.Commit();
    ASSERT_TRUE(outbox_.OnSynced());
  }
  void AppendTick(std::uint64_t clock) { outbox_.Append(LoggedTick{kWorker, {Clock(clock), {}, {}}}); }
  void Answer(std::uint64_t clock) { outbox_.Answer(kPeer, kWorker, TickAck{Clock(clock)}, true); }

  MemoryDisk disk_;
  MemoryShardLog log_{&disk_, "run/log/shard-0"};
  Outbox out_;
  ShardStep step_{ShardId(0)};
  DurableOutbox outbox_{&log_, &step_};
};

TEST_F(DurableOutboxTest, WithoutALogMessagesAreSentAtOnce) {
  AppendTick(1);
  EXPECT_TRUE(outbox_.IsDurable());
  Answer(1);
  outbox_.SendHeartbeat({});
  EXPECT_EQ(out_.size(), 2u);
  EXPECT_TRUE(outbox_.OnSynced());
}

TEST_F(DurableOutboxTest, AnswersWaitUntilEarlierInputsAreDurable) {
  BeginLog();
  AppendTick(1);
  Answer(1);
  outbox_.Send(kSchedulerPeer, CheckpointPart{.id = CheckpointId(7)});
  EXPECT_FALSE(outbox_.IsDurable());
  EXPECT_EQ(outbox_.held(), 2u);
  log_.Write();
  ASSERT_TRUE(outbox_.OnSynced());
  EXPECT_TRUE(out_.empty()) << "written is not durable";
  Sync();
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<TickAck>(out_[0].message.body));
  EXPECT_TRUE(std::holds_alternative<CheckpointPart>(out_[1].message.body));
  EXPECT_TRUE(outbox_.IsDurable());
  EXPECT_EQ(outbox_.synced(), outbox_.appended());
}

TEST_F(DurableOutboxTest, WhileAHeartbeatWaitsTheLastOneIsSentAgain) {
  BeginLog();
  outbox_.SendHeartbeat({.view = ViewVersion(3)});
  AppendTick(1);
  outbox_.SendHeartbeat({.view = ViewVersion(4)});
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_EQ(std::get<Heartbeat>(out_[1].message.body).view, ViewVersion(3));
  Sync();
  ASSERT_EQ(out_.size(), 3u);
  EXPECT_EQ(std::get<Heartbeat>(out_[2].message.body).view, ViewVersion(4));
}

TEST_F(DurableOutboxTest, DroppedMessagesAreNotSent) {
  BeginLog();
  AppendTick(1);
  Answer(1);
  outbox_.DropHeld();
  Sync();
  EXPECT_TRUE(out_.empty());
}

TEST_F(DurableOutboxTest, SegmentsBeforeACompleteCheckpointAreRemoved) {
  BeginLog();
  outbox_.BeginSegment(CheckpointId(5), LoggedHead{});
  Sync();
  const std::size_t before = disk_.Paths().size();
  View view;
  view.whole = CheckpointId(5);
  outbox_.AppendView(view, CheckpointId(5));
  Sync();
  EXPECT_EQ(disk_.Paths().size(), before - 1);
}

}  // namespace
}  // namespace tarn::server
