// Shows that messages have the identity of the shard as far as it is known, go into the outbox of the current step, and
// are sent within the step if they are large.
#include "server/shard/shard_step.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tarn::server {
namespace {

TEST(ShardStepTest, MessagesHaveTheShardsIdentity) {
  Outbox out;
  ShardStep step(ShardId(3));
  step.Begin(7, &out);
  EXPECT_EQ(step.now(), 7);
  step.Send(kSchedulerPeer, Join{});
  step.SetIdentity(42, Incarnation(5));
  step.SetEpoch(Epoch(2));
  step.Send(Peer(9), TickAck{Clock(1)});
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].to, kSchedulerPeer);
  EXPECT_EQ(out[0].message.job, 0u);
  EXPECT_EQ(out[0].message.sender.rank, 3u);
  EXPECT_EQ(out[0].message.sender.incarnation, Incarnation(0));
  EXPECT_EQ(out[1].to, Peer(9));
  EXPECT_EQ(out[1].message.job, 42u);
  EXPECT_EQ(out[1].message.sender.role, Role::kShard);
  EXPECT_EQ(out[1].message.sender.incarnation, Incarnation(5));
  EXPECT_EQ(out[1].message.epoch, Epoch(2));
}

TEST(ShardStepTest, MessagesGoIntoTheOutboxOfTheCurrentStep) {
  Outbox first, second;
  ShardStep step(ShardId(0));
  step.Begin(1, &first);
  const Message kept = step.Make(TickAck{Clock(1)});
  step.Begin(2, &second);
  step.Send({Peer(9), kept});
  EXPECT_TRUE(first.empty());
  EXPECT_EQ(second.size(), 1u);
}

class LargeAnswersTest : public testing::Test {
 protected:
  void Send(std::size_t bytes) {
    PullReply reply;
    reply.tables.push_back({.values = Buffer::Allocate(bytes)});
    step_.Send(Peer(9), std::move(reply));
  }
  Outbox out_;
  std::vector<std::size_t> sent_;  // messages, by flush
  ShardStep step_{ShardId(0), [this] {
                    sent_.push_back(out_.size());
                    out_.clear();
                  }};
};

TEST_F(LargeAnswersTest, AreSentWithinTheStep) {
  step_.Begin(1, &out_);
  Send(ShardStep::kFlushBytes - 1);
  EXPECT_TRUE(sent_.empty());
  step_.Begin(2, &out_);
  Send(1);
  Send(1);
  Send(2 * ShardStep::kFlushBytes);
  Send(1);
  EXPECT_EQ(sent_, (std::vector<std::size_t>{2, 2}));
  EXPECT_EQ(out_.size(), 1u);
}

TEST_F(LargeAnswersTest, AStepDropsWhatItHasNotSent) {
  step_.Begin(1, &out_);
  Send(1);
  step_.Begin(2, &out_);
  Send(1);
  step_.DropMessages();
  EXPECT_EQ(out_.size(), 1u);
  Send(ShardStep::kFlushBytes);
  Send(1);
  step_.DropMessages();
  EXPECT_EQ(sent_, (std::vector<std::size_t>{2}));
  EXPECT_TRUE(out_.empty());
}

TEST_F(LargeAnswersTest, AreCountedAnewOnceTheOutboxIsEmpty) {
  step_.Begin(1, &out_);
  Send(ShardStep::kFlushBytes - 1);
  out_.clear();  // sent at the end of a turn
  step_.Begin(2, &out_);
  Send(1);
  EXPECT_TRUE(sent_.empty());
}

}  // namespace
}  // namespace tarn::server
