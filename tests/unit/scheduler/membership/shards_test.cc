// Shows Shards alone: which process may join as which shard, and what follows from the heartbeats of all shards.
#include "scheduler/membership/shards.h"

#include <gtest/gtest.h>

#include "tests/unit/scheduler/membership/nodes_fixture.h"

namespace tarn::scheduler {
namespace {

constexpr TimeUs kSecondUs = 1'000'000;

class ShardsTest : public testing::Test {
 protected:
  Shards::Joined OnJoin(const Join& join, TimeUs now) {
    letters_.Clear();
    return shards_.OnJoin(Peer(join.nonce), join, now, &incarnations_, letters_.mail);
  }
  void FormAll() {
    for (std::uint32_t rank : {0u, 1u}) OnJoin(ShardJoin(rank, 10 + rank), 0);
    shards_.Form(0);
  }
  Sender SenderOf(std::uint32_t rank) const { return {Role::kShard, rank, shards_.at(ShardId(rank)).incarnation}; }

  Shards shards_{{.count = 2, .per_server = 2, .lease_us = 5 * kSecondUs, .after_a_lost_shard = "resume"}};
  Incarnations incarnations_{Incarnation(3)};
  Letters letters_;
};

TEST_F(ShardsTest, AreCompleteOnceEachHasJoined) {
  EXPECT_EQ(OnJoin(ShardJoin(1, 11), 0).note, "shard 1 joined: endpoint-11");
  EXPECT_EQ(shards_.at(ShardId(1)).incarnation, Incarnation(3));
  EXPECT_FALSE(shards_.Complete());
  OnJoin(ShardJoin(0, 10), 0);
  EXPECT_TRUE(shards_.Complete());
  EXPECT_EQ(shards_.RecordContact(SenderOf(0), Peer(10), 0), nullptr);  // not formed
  EXPECT_EQ(shards_.Form(5), (std::vector<std::string>{"endpoint-10", "endpoint-11"}));
  ASSERT_NE(shards_.RecordContact(SenderOf(0), std::nullopt, 7), nullptr);
  EXPECT_EQ(shards_.at(ShardId(0)).peer, Peer(10));
  EXPECT_EQ(shards_.at(ShardId(0)).heard, 7);
  EXPECT_EQ(shards_.RecordContact({Role::kShard, 0, Incarnation(99)}, Peer(10), 0), nullptr);
}

TEST_F(ShardsTest, AJoinWithWrongRankOrSettingsIsRefused) {
  EXPECT_EQ(OnJoin(ShardJoin(2, 12), 0).note, "rejected shard 2: the job has 2 shards");
  EXPECT_EQ(letters_.Last<Shutdown>()->code, ErrorCode::kInvalidArgument);
  Join join = ShardJoin(0, 10);
  join.shards_per_server = 4;
  EXPECT_TRUE(OnJoin(join, 0).note.starts_with("rejected shard 0: server 0 has --shards 4"));
  EXPECT_EQ(incarnations_.next(), Incarnation(3));
}

TEST_F(ShardsTest, ARepeatedJoinIsWelcomedOnceTheFleetIsFormed) {
  OnJoin(ShardJoin(0, 10), 0);
  EXPECT_EQ(OnJoin(ShardJoin(0, 10), 1).welcome, nullptr);
  OnJoin(ShardJoin(1, 11), 0);
  shards_.Form(0);
  EXPECT_EQ(OnJoin(ShardJoin(0, 10), 2).welcome, &shards_.at(ShardId(0)));
  EXPECT_EQ(OnJoin(ShardJoin(0, 20), 3).note, "rejected a second start of shard 0");
  EXPECT_EQ(letters_.Last<Shutdown>()->code, ErrorCode::kFenced);
}

TEST_F(ShardsTest, TheFirstOfTwoOfOneRankStaysIfItRepeatsItsJoin) {
  OnJoin(ShardJoin(0, 10), 0);
  OnJoin(ShardJoin(0, 20), kSecondUs);
  EXPECT_NE(letters_.Last<HeartbeatAck>(), nullptr);  // it must wait
  OnJoin(ShardJoin(0, 10), 2 * kSecondUs + 1);
  EXPECT_TRUE(OnJoin(ShardJoin(0, 20), 2 * kSecondUs + 2).note.starts_with("rejected shard 0 at endpoint-20"));
  EXPECT_EQ(letters_.Last<Shutdown>()->code, ErrorCode::kAlreadyExists);
}

TEST_F(ShardsTest, TheSecondOfTwoOfOneRankReplacesASilentFirst) {
  OnJoin(ShardJoin(0, 10), 0);
  OnJoin(ShardJoin(0, 20), kSecondUs);
  EXPECT_TRUE(OnJoin(ShardJoin(0, 20), 4 * kSecondUs).note.empty());
  EXPECT_EQ(OnJoin(ShardJoin(0, 20), 4 * kSecondUs + 1).note, "shard 0 joined: endpoint-20");
  EXPECT_EQ(shards_.at(ShardId(0)).nonce, 20u);
}

TEST_F(ShardsTest, AViewIsConfirmedOnceAllHaveAdoptedIt) {
  FormAll();
  shards_.OnHeartbeat(ShardId(0), ShardBeat(ViewVersion(5), Clock(8)), ViewVersion(4), ViewVersion(0));
  EXPECT_FALSE(shards_.Confirmed(ViewVersion(1)));
  shards_.OnHeartbeat(ShardId(1), ShardBeat(ViewVersion(3), Clock(6)), ViewVersion(4), ViewVersion(0));
  EXPECT_EQ(shards_.LeastConfirmed(), ViewVersion(3));
  EXPECT_EQ(shards_.at(ShardId(0)).confirmed, ViewVersion(4));  // not beyond the newest view
  EXPECT_EQ(shards_.MinClock(), Clock(6));
  EXPECT_EQ(shards_.MaxClock(), Clock(8));
  shards_.OnHeartbeat(ShardId(1), ShardBeat(ViewVersion(2), Clock(1)), ViewVersion(4), ViewVersion(0));  // outdated
  EXPECT_EQ(shards_.LeastConfirmed(), ViewVersion(3));
  EXPECT_EQ(shards_.MinClock(), Clock(6));
}

TEST_F(ShardsTest, LogBytesFromBeforeTheNewestCheckpointDoNotCount) {
  FormAll();
  Heartbeat beat = ShardBeat(ViewVersion(3));
  beat.log_bytes = 100;
  shards_.OnHeartbeat(ShardId(1), beat, ViewVersion(9), ViewVersion(3));
  EXPECT_EQ(shards_.LogBytes(), 100u);
  shards_.ForgetLogBytes();
  shards_.OnHeartbeat(ShardId(1), beat, ViewVersion(9), ViewVersion(4));
  EXPECT_EQ(shards_.LogBytes(), 0u);
}

TEST_F(ShardsTest, MayWriteUntilEachHasAdoptedTheViewAndEndedItsWrite) {
  FormAll();
  Heartbeat beat = ShardBeat(ViewVersion(5));
  shards_.OnHeartbeat(ShardId(0), beat, ViewVersion(9), ViewVersion(0));
  EXPECT_TRUE(shards_.MayWrite(CheckpointId(2), ViewVersion(5)));
  beat.writing = CheckpointId(2);
  shards_.OnHeartbeat(ShardId(1), beat, ViewVersion(9), ViewVersion(0));
  EXPECT_TRUE(shards_.MayWrite(CheckpointId(2), ViewVersion(5)));
  EXPECT_FALSE(shards_.MayWrite(CheckpointId(1), ViewVersion(5)));
}

TEST_F(ShardsTest, SilenceCountsFromTheTimeTheSchedulerListens) {
  OnJoin(ShardJoin(0, 10), 0);
  OnJoin(ShardJoin(1, 11), 3 * kSecondUs);
  shards_.DropSilent(6 * kSecondUs, 0);
  EXPECT_EQ(shards_.joined(), 1u);
  OnJoin(ShardJoin(0, 10), 6 * kSecondUs);
  shards_.Form(6 * kSecondUs);
  shards_.RecordContact(SenderOf(1), Peer(11), 9 * kSecondUs);
  EXPECT_EQ(shards_.Silent(11 * kSecondUs, 0), std::nullopt);
  EXPECT_EQ(shards_.Silent(12 * kSecondUs, 0), ShardId(0));
  EXPECT_EQ(shards_.Silent(12 * kSecondUs, 10 * kSecondUs), std::nullopt);
}

}  // namespace
}  // namespace tarn::scheduler
