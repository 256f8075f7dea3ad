// Shows ViewSender alone: which nodes get the newest view, when, and in which message.
#include "scheduler/membership/view_sender.h"

#include <gtest/gtest.h>

#include "tests/unit/scheduler/membership/nodes_fixture.h"

namespace tarn::scheduler {
namespace {

constexpr TimeUs kBeatUs = 1000;

class ViewSenderTest : public testing::Test {
 protected:
  void SetUp() override {
    view_.Form({"a"});
    shard_.peer = Peer(1);
    shard_.logged = LogSequence(33);
    worker_.peer = Peer(2);
    worker_.state = WorkerNode::State::kLive;
    worker_.join = Clock(6);
    worker_.live_version = view_.get().version;
  }
  std::size_t SendToShard(TimeUs now) {
    letters_.Clear();
    sender_.SendIfDue(shard_, &shard_.view_sent, now, letters_.mail);
    return letters_.out.size();
  }
  std::size_t SendToWorker(ViewVersion confirmed, TimeUs now) {
    letters_.Clear();
    sender_.SendIfDue(&worker_, confirmed, now, letters_.mail);
    return letters_.out.size();
  }

  Shards shards_{{.count = 1}};
  CurrentView view_{3, 8, &shards_};
  ViewSender sender_{{.heartbeat_us = kBeatUs, .job_text = "job", .start_clock = Clock(4), .log = {.run = 5}}, &view_};
  ShardNode shard_;
  WorkerNode worker_;
  Letters letters_;
};

TEST_F(ViewSenderTest, AShardIsWelcomedUntilItHasConfirmedAView) {
  EXPECT_EQ(SendToShard(0), 1u);
  const Welcome* welcome = letters_.Last<Welcome>();
  ASSERT_NE(welcome, nullptr);
  EXPECT_EQ(welcome->start_clock, Clock(4));
  EXPECT_EQ(welcome->log.run, 5u);
  EXPECT_EQ(welcome->log.at_least, LogSequence(33));
  EXPECT_EQ(SendToShard(kBeatUs), 0u);  // time 0 counts as 1
  EXPECT_EQ(SendToShard(kBeatUs + 1), 1u);
  EXPECT_NE(letters_.Last<Welcome>(), nullptr);
  shard_.confirmed = view_.get().version;
  EXPECT_EQ(SendToShard(9 * kBeatUs), 0u);
  view_.CloseProposal();
  EXPECT_EQ(SendToShard(9 * kBeatUs), 1u);  // a new version at once
  EXPECT_NE(letters_.Last<ViewUpdate>(), nullptr);
}

TEST_F(ViewSenderTest, AWorkerIsWelcomedOnceShardsKnowIt) {
  EXPECT_EQ(SendToWorker(ViewVersion(0), 1), 0u);
  EXPECT_EQ(SendToWorker(ViewVersion(1), 1), 1u);
  ASSERT_NE(letters_.Last<Welcome>(), nullptr);
  EXPECT_EQ(letters_.Last<Welcome>()->start_clock, Clock(6));
  EXPECT_EQ(worker_.heard, 1) << "its lease begins now, not with its last join";
  EXPECT_EQ(SendToWorker(ViewVersion(1), kBeatUs), 0u);
  EXPECT_EQ(SendToWorker(ViewVersion(1), kBeatUs + 1), 1u);
  EXPECT_NE(letters_.Last<ViewUpdate>(), nullptr);
  worker_.state = WorkerNode::State::kFencing;
  EXPECT_EQ(SendToWorker(ViewVersion(1), 9 * kBeatUs), 0u);
}

TEST_F(ViewSenderTest, AHeartbeatWithAnOlderViewIsAnsweredWithTheNewest) {
  ViewSent sent;
  sender_.Acknowledge(Peer(2), ViewVersion(0), &sent, 10, letters_.mail);
  EXPECT_EQ(letters_.Clear(), 2u);
  sender_.Acknowledge(Peer(2), ViewVersion(0), &sent, 10 + kBeatUs / 4 - 1, letters_.mail);
  EXPECT_EQ(letters_.Clear(), 1u);  // it was sent just before
  sender_.Acknowledge(Peer(2), ViewVersion(0), &sent, 10 + kBeatUs / 4, letters_.mail);
  ASSERT_NE(letters_.Last<ViewUpdate>(), nullptr);
  letters_.Clear();
  sender_.Acknowledge(Peer(2), view_.get().version, &sent, 9 * kBeatUs, letters_.mail);
  ASSERT_EQ(letters_.out.size(), 1u);
  EXPECT_EQ(letters_.Last<HeartbeatAck>()->view, view_.get().version);
}

}  // namespace
}  // namespace tarn::scheduler
