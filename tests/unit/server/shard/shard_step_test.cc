// Shows that messages have the shard's identity as far as it is known, and go into the outbox of the current step.
#include "server/shard/shard_step.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tarn::server
