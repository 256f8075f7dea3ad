// Shows that a turn of a shard's loop runs the shard's timer between messages, however many messages the turn handles.
#include "server/turn.h"

#include <utility>

#include "server/shard/shard_step.h"
#include "tests/unit/server/shard/shard_fixture.h"

namespace tarn::server {
namespace {

class TurnTest : public ShardTest {
 protected:
  // Runs a turn of `n` pulls, each of which takes `us`.
  TimeUs TakeTurn(std::size_t n, TimeUs us) {
    std::vector<net::Received> batch;
    batch.reserve(n);
    for (std::size_t i = 0; i < n; ++i) batch.push_back({kWorkerPeer, PullOf(0, 10, 5, 0, i + 1)});
    auto clock = [this, us] { return std::exchange(now_, now_ + us); };
    return HandOver(&batch, shard_.get(), clock, &out_, [this] {
      ++flushes_;
      heartbeats_ += Take<Heartbeat>().size();
    });
  }
  int flushes_ = 0;
  std::size_t heartbeats_ = 0;  // that were sent
};

TEST_F(TurnTest, ACutProceedsWithinATurn) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate), {.cut_slice_bytes = 1});
  for (std::uint32_t partition = 0; partition < 4; ++partition) Deliver(PushOf(0, 10, KeyIn(partition), 1, 0));
  view_.checkpoint = {CheckpointId(1), false, Clock(0), "ckpt-1"};
  NextView();
  ASSERT_TRUE(shard_->rows().cut().active());
  TakeTurn(200, kTurnTimerUs - 1);  // every second message
  EXPECT_FALSE(shard_->rows().cut().active());
  EXPECT_EQ(written_.size(), 1u);
}

TEST_F(TurnTest, HeartbeatsAreSentWithinATurn) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  out_.clear();
  const TimeUs begin = now_;
  EXPECT_EQ(TakeTurn(100, 50'000), begin + 100 * 50'000);
  EXPECT_GE(heartbeats_, 4u);
}

TEST_F(TurnTest, HandledMessagesKeepNothing) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  std::vector<net::Received> batch;
  batch.reserve(2);
  for (std::size_t i = 0; i < 2; ++i) batch.push_back({kWorkerPeer, PushOf(0, 10, 5, i + 1, 0)});
  ASSERT_NE(PayloadBytes(batch[0].message), 0u);
  std::vector<std::size_t> kept;
  const auto clock = [&] {
    kept.push_back(PayloadBytes(batch[0].message));
    return now_;
  };
  HandOver(&batch, shard_.get(), clock, &out_, [] {});
  EXPECT_EQ(kept.back(), 0u);
  EXPECT_EQ(PayloadBytes(batch[1].message), 0u);
}

TEST_F(TurnTest, AShortTurnDoesNotRunTheTimer) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate));
  now_ = shard_->NextTimer();
  out_.clear();
  const TimeUs begin = now_;
  EXPECT_EQ(TakeTurn(100, 10), begin);
  EXPECT_TRUE(Take<Heartbeat>().empty());
  EXPECT_EQ(flushes_, 0);
}

TEST_F(TurnTest, LargeAnswersAreSentWithinATurn) {
  Join({LiveWorker(0, 10)}, CountingTable(ConsistencyMode::kAsp, ApplyMode::kImmediate), {.flush = [this] {
         ++flushes_;
         out_.clear();
       }});
  out_.clear();
  TakeTurn(1, 10);
  const std::size_t reply = PayloadBytes(out_.at(0).message);
  ASSERT_NE(reply, 0u);
  out_.clear();
  const std::size_t large = (ShardStep::kFlushBytes + reply - 1) / reply;
  TakeTurn(large - 1, 10);
  EXPECT_EQ(flushes_, 0);
  TakeTurn(large + 2, 10);
  EXPECT_EQ(flushes_, 2);
  EXPECT_EQ(out_.size(), 1u);
}

}  // namespace
}  // namespace tarn::server
