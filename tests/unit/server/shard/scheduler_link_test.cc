// Shows rules N1 and N5: a shard repeats Join until it is welcome, sends heartbeats in the job's period, and pauses
// once the scheduler has been silent for a lease.
#include "server/shard/scheduler_link.h"

#include <gtest/gtest.h>

namespace tarn::server {
namespace {

class SchedulerLinkTest : public testing::Test {
 protected:
  void At(TimeUs now) { step_.Begin(now, &out_); }
  static Message FromScheduler(std::uint64_t job) {
    Message message;
    message.job = job;
    message.sender = {Role::kScheduler, 0, Incarnation(1)};
    return message;
  }
  Outbox out_;
  ShardStep step_{ShardId(2)};
  SchedulerLink link_{{.nonce = 77, .endpoint = "tcp://here", .shards_per_server = 4, .http = "http://here:80"},
                      &step_};
};

TEST_F(SchedulerLinkTest, RepeatsJoinUntilItIsWelcome) {
  At(1'000);
  link_.Start();
  const Join& join = std::get<Join>(out_.at(0).message.body);
  EXPECT_EQ(join.rank, 2u);
  EXPECT_EQ(join.nonce, 77u);
  EXPECT_EQ(join.endpoint, "tcp://here");
  EXPECT_EQ(join.shards_per_server, 4u);
  EXPECT_EQ(join.http, "http://here:80");
  const TimeUs again = link_.next_beat();
  EXPECT_GT(again, 1'000);
  At(again);
  link_.SendJoin();
  EXPECT_EQ(out_.size(), 2u);
  EXPECT_GT(link_.next_beat(), again);
}

TEST_F(SchedulerLinkTest, OnlyAWelcomeWithItsNonceIsAccepted) {
  EXPECT_TRUE(link_.IsMine({.nonce = 77}));
  EXPECT_FALSE(link_.IsMine({.nonce = 78}));
}

TEST_F(SchedulerLinkTest, MessagesMustComeFromTheSchedulersPeerAndTheJobOnceKnown) {
  EXPECT_TRUE(link_.IsFromScheduler(kSchedulerPeer, FromScheduler(1)));
  EXPECT_FALSE(link_.IsFromScheduler(Peer(9), FromScheduler(1)));
  Message of_worker = FromScheduler(1);
  of_worker.sender.role = Role::kWorker;
  EXPECT_FALSE(link_.IsFromScheduler(kSchedulerPeer, of_worker));
  step_.SetIdentity(1, Incarnation(5));
  link_.SetJoined();
  EXPECT_TRUE(link_.IsFromScheduler(kSchedulerPeer, FromScheduler(1)));
  EXPECT_FALSE(link_.IsFromScheduler(kSchedulerPeer, FromScheduler(2)));
}

TEST_F(SchedulerLinkTest, PausesOneLeaseAfterTheLastMessageOfTheScheduler) {
  At(1'000);
  link_.Start();
  link_.SetPeriods(100, 500);
  At(1'500);
  EXPECT_FALSE(link_.Paused());
  At(1'501);
  EXPECT_TRUE(link_.Paused());
  link_.OnHeard();
  EXPECT_FALSE(link_.Paused());
  EXPECT_EQ(link_.heard(), 1'501);
  link_.OnBeat();
  EXPECT_EQ(link_.next_beat(), 1'601);
}

}  // namespace
}  // namespace tarn::server
