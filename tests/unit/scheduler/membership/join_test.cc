// Shows how nodes join (rules N1-N3, N6, M2): welcomes, repeated and refused Joins, and rejoins that fence.
#include <gtest/gtest.h>

#include "core/limits.h"
#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

TEST(Join, NoNodeIsWelcomedUntilAllHaveJoined) {
  FakeFleet fleet(SmallJob(2, 2));
  fleet.AddShard(0);
  fleet.AddShard(1);
  fleet.AddWorker(0);
  EXPECT_EQ(fleet.workers[0]->incarnation, Incarnation(0));
  EXPECT_EQ(fleet.scheduler.progress().phase, "waiting");
  fleet.AddWorker(1);
  EXPECT_EQ(fleet.scheduler.progress().phase, "train");
  for (const auto& worker : fleet.workers) {
    EXPECT_NE(worker->incarnation, Incarnation(0));
    EXPECT_EQ(worker->start, Clock(0));
  }
  const View& view = fleet.scheduler.view();
  EXPECT_EQ(view.routes.owners, EvenOwners(6, 2));
  EXPECT_EQ(view.routes.endpoints.size(), 2u);
  ASSERT_EQ(view.workers.size(), 2u);
  EXPECT_EQ(view.workers[0].rank, WorkerRank(0));
}

TEST(Join, AWorkerWaitsUntilEveryShardHasConfirmedItsView) {
  FakeFleet fleet(SmallJob(2, 1));
  fleet.AddShard(0);
  FakeShard& deaf = fleet.AddShard(1);
  deaf.silent = true;
  fleet.AddWorker(0);
  EXPECT_EQ(fleet.workers[0]->incarnation, Incarnation(0));
  deaf.silent = false;
  fleet.Pass(2);  // the Welcome is repeated
  EXPECT_NE(fleet.workers[0]->incarnation, Incarnation(0));
}

TEST(Join, WaitingNodesAreAnswered) {
  FakeFleet fleet(SmallJob(2, 2));
  int heard = 0;
  fleet.on_send = [&](const Outgoing& sent) { heard += std::holds_alternative<HeartbeatAck>(sent.message.body); };
  const auto joins = [&](Peer peer, std::uint32_t rank, std::uint64_t nonce) {
    heard = 0;
    fleet.SendFrom(
        peer, {.body = Join{
                   .role = Role::kWorker, .rank = rank, .nonce = nonce, .protocol_version = limits::kProtocolVersion}});
    return heard;
  };
  FakeWorker& early = fleet.AddWorker(0);
  EXPECT_EQ(joins(early.peer, 0, early.nonce), 1) << "the fleet is not complete";
  fleet.AddShard(0);
  fleet.AddShard(1).silent = true;  // loads its rows
  fleet.AddWorker(1);
  EXPECT_EQ(fleet.scheduler.progress().phase, "train");
  EXPECT_EQ(joins(early.peer, 0, early.nonce), 1);
  EXPECT_EQ(joins(Peer(kFirstAcceptedPeer + 900), kAnyRank, 99), 1) << "all ranks are taken";
  EXPECT_EQ(early.incarnation, Incarnation(0));
}

TEST(Join, ARepeatedJoinGetsTheSameWelcome) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.AddAll();
  FakeWorker& worker = *fleet.workers[0];
  const Incarnation first = worker.incarnation;
  worker.incarnation = Incarnation(0);  // as if the Welcome had been lost
  worker.view = {};
  fleet.Pass(1);
  EXPECT_EQ(worker.incarnation, first);
  EXPECT_EQ(fleet.scheduler.view().workers.size(), 1u);
}

TEST(Join, AnyRankTakesTheLowestFree) {
  FakeFleet fleet(SmallJob(1, 2));
  fleet.AddShard(0);
  fleet.AddWorker(kAnyRank);
  fleet.AddWorker(kAnyRank);
  EXPECT_EQ(fleet.workers[0]->rank, WorkerRank(0));
  EXPECT_EQ(fleet.workers[1]->rank, WorkerRank(1));
  FakeWorker& third = fleet.AddWorker(kAnyRank);
  EXPECT_FALSE(third.shutdown);
  EXPECT_EQ(third.incarnation, Incarnation(0));
}

TEST(Join, RefusesOtherVersionsJobsAndRanks) {
  FakeFleet fleet(SmallJob(1, 1));
  FakeWorker& beyond = fleet.AddWorker(1);
  ASSERT_TRUE(beyond.shutdown);
  EXPECT_EQ(beyond.shutdown->code, ErrorCode::kInvalidArgument);
  FakeShard& extra = fleet.AddShard(1);
  ASSERT_TRUE(extra.shutdown);
  EXPECT_EQ(extra.shutdown->code, ErrorCode::kInvalidArgument);

  FakeWorker& old = fleet.AddWorker(0);
  Message join;
  join.sender = {Role::kWorker, 0, Incarnation(0)};
  join.body = Join{.role = Role::kWorker, .rank = 0, .nonce = 5, .protocol_version = 999, .endpoint = {}};
  fleet.SendFrom(old.peer, join);
  ASSERT_TRUE(old.shutdown);
  EXPECT_EQ(old.shutdown->code, ErrorCode::kWrongJob);

  FakeShard& other = fleet.AddShard(0);
  Message wrong;
  wrong.job = 1234;
  wrong.sender = {Role::kShard, 0, Incarnation(1)};
  wrong.body = Heartbeat{};
  fleet.SendFrom(other.peer, wrong);
  ASSERT_TRUE(other.shutdown);
  EXPECT_EQ(other.shutdown->code, ErrorCode::kWrongJob);
}

// Otherwise shard 1 of one server would replace the only shard of the next server.
TEST(Join, AServerWithAnotherNumberOfShardsIsRefused) {
  Job job = SmallJob(1, 1);
  job.fleet.servers = 2;
  FakeFleet fleet(job);
  std::vector<Shutdown> answers;
  fleet.on_send = [&](const Outgoing& sent) {
    if (const auto* shutdown = std::get_if<Shutdown>(&sent.message.body)) answers.push_back(*shutdown);
  };
  const auto joins = [&](std::uint32_t shard, std::uint32_t shards_per_server) {
    Message join;
    join.sender = {Role::kShard, shard, Incarnation(0)};
    join.body = Join{.role = Role::kShard,
                     .rank = shard,
                     .nonce = 900 + shard,
                     .protocol_version = limits::kProtocolVersion,
                     .endpoint = "tcp://shard",
                     .shards_per_server = shards_per_server};
    fleet.SendFrom(Peer(kFirstAcceptedPeer + 900 + shard), join);
  };
  joins(0, 2);
  joins(1, 2);
  EXPECT_EQ(fleet.scheduler.progress().shards_joined, 0u);
  ASSERT_EQ(answers.size(), 2u);
  for (const Shutdown& answer : answers) {
    EXPECT_EQ(answer.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(answer.reason, "server 0: --shards 2: expected 1 as in the job (fleet.shards)");
  }
  joins(0, 1);
  joins(1, 0);  // 0: an unknown number
  EXPECT_EQ(fleet.scheduler.progress().shards_joined, 2u);
  EXPECT_EQ(answers.size(), 2u);
}

// Two servers of one rank. The test sends all their Joins, repeated ones too.
class ServersOfOneRank : public testing::Test {
 protected:
  struct Server {
    std::uint64_t nonce;
    const char* endpoint;
  };
  static constexpr Server kFirst{901, "tcp://first"}, kSecond{902, "tcp://second"};

  ServersOfOneRank() {
    fleet.on_send = [this](const Outgoing& sent) {
      if (const auto* welcome = std::get_if<Welcome>(&sent.message.body)) welcomed = welcome->nonce;
      if (const auto* shutdown = std::get_if<Shutdown>(&sent.message.body)) refused[sent.to] = *shutdown;
    };
  }

  static Peer PeerOf(const Server& server) { return Peer(kFirstAcceptedPeer + server.nonce); }
  void Join(const Server& server) {
    Message join;
    join.sender = {Role::kShard, 0, Incarnation(0)};
    join.body = tarn::Join{.role = Role::kShard,
                           .rank = 0,
                           .nonce = server.nonce,
                           .protocol_version = limits::kProtocolVersion,
                           .endpoint = server.endpoint,
                           .shards_per_server = 1};
    fleet.SendFrom(PeerOf(server), join);
  }
  void JoinFor(double seconds, const std::vector<Server>& servers) {
    for (double passed = 0; passed < seconds; passed += 0.5) {
      for (const Server& server : servers)
        if (!refused.contains(PeerOf(server))) Join(server);
      fleet.Pass(0.5);
    }
  }

  FakeFleet fleet{SmallJob(1, 1)};
  std::map<Peer, Shutdown> refused;
  std::uint64_t welcomed = 0;
};

TEST_F(ServersOfOneRank, TheSecondIsRefusedWhileTheFirstWaits) {
  JoinFor(1, {kFirst});
  JoinFor(3, {kFirst, kSecond});
  ASSERT_EQ(refused.size(), 1u);
  const Shutdown& refusal = refused.at(PeerOf(kSecond));
  EXPECT_EQ(refusal.code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(refusal.reason,
            "server 0: another server of this rank has joined, at tcp://first; use one rank per server");
  fleet.AddWorker(0);
  EXPECT_EQ(welcomed, kFirst.nonce);
  EXPECT_EQ(fleet.scheduler.view().routes.endpoints, std::vector<std::string>{"tcp://first"});
}

TEST_F(ServersOfOneRank, TheSecondReplacesOneThatHasDied) {
  JoinFor(1, {kFirst});
  JoinFor(0.5, {kSecond});
  Join(kFirst);  // its last Join
  JoinFor(3, {kSecond});
  EXPECT_EQ(fleet.scheduler.view().version, ViewVersion(0));
  JoinFor(1, {kSecond});
  EXPECT_TRUE(refused.empty());
  fleet.AddWorker(0);
  EXPECT_EQ(welcomed, kSecond.nonce);
  Join(kFirst);
  ASSERT_TRUE(refused.contains(PeerOf(kFirst)));
  EXPECT_EQ(refused.at(PeerOf(kFirst)).code, ErrorCode::kFenced);
}

TEST_F(ServersOfOneRank, AServerIsRefusedIfTheRunAlreadyHasThatRank) {
  JoinFor(1, {kFirst});
  fleet.AddWorker(0);
  Join(kSecond);
  ASSERT_TRUE(refused.contains(PeerOf(kSecond)));
  const Shutdown& refusal = refused.at(PeerOf(kSecond));
  EXPECT_EQ(refusal.code, ErrorCode::kFenced);
  EXPECT_TRUE(refusal.reason.starts_with("server 0: the run already has a server of this rank, at tcp://first"))
      << refusal.reason;
  EXPECT_EQ(welcomed, kFirst.nonce);
}

TEST(Join, ASilentJoinerIsForgotten) {
  FakeFleet fleet(SmallJob(1, 2));
  fleet.AddShard(0);
  fleet.AddWorker(0).silent = true;
  fleet.shards[0]->incarnation = Incarnation(1);  // keeps it sending
  fleet.Pass(7);
  EXPECT_EQ(fleet.scheduler.progress().workers_waiting, 0u);
}

TEST(Join, ARejoinFencesTheOldIncarnation) {
  FakeFleet fleet(SmallJob(1, 2));
  fleet.rows[0] = 300;
  fleet.AddAll();
  FakeWorker& old = *fleet.workers[0];
  for (int i = 0; i < 5; ++i) fleet.Work(old);
  const Clock other = fleet.workers[1]->clock;
  FakeWorker& anew = fleet.AddWorker(0);
  fleet.Pass(3);
  EXPECT_NE(anew.incarnation, Incarnation(0));
  EXPECT_GT(anew.incarnation, old.incarnation);
  EXPECT_EQ(anew.start, std::max(other, old.clock) + kProposalSlack + 1);
  ASSERT_TRUE(old.shutdown);
  EXPECT_EQ(old.shutdown->code, ErrorCode::kFenced);
  // The nonce of the old process is no longer accepted.
  Message again;
  again.sender = {Role::kWorker, 0, Incarnation(0)};
  again.body = Join{.role = Role::kWorker,
                    .rank = 0,
                    .nonce = old.nonce,
                    .protocol_version = limits::kProtocolVersion,
                    .endpoint = {}};
  old.shutdown.reset();
  fleet.SendFrom(old.peer, again);
  ASSERT_TRUE(old.shutdown);
  EXPECT_EQ(old.shutdown->code, ErrorCode::kFenced);
}

TEST(Join, NoWorkerPassesTheJoinClock) {
  FakeFleet fleet(SmallJob(1, 2));
  fleet.rows[0] = 10000;
  fleet.AddAll();
  fleet.Kill(*fleet.workers[0]);
  for (int i = 0; i < 40; ++i) fleet.Work(*fleet.workers[1]);
  fleet.Pass(7);
  FakeWorker& survivor = *fleet.workers[1];
  survivor.silent = true;  // reports nothing: the proposal stays open
  fleet.AddWorker(0);
  fleet.Pass(2);
  EXPECT_TRUE(fleet.scheduler.view().proposal.open);
  EXPECT_EQ(fleet.Newest(0).incarnation, Incarnation(0));
  survivor.silent = false;
  fleet.Pass(2);
  FakeWorker& joiner = fleet.Newest(0);
  ASSERT_NE(joiner.incarnation, Incarnation(0));
  EXPECT_GT(joiner.start, survivor.clock);
  EXPECT_FALSE(fleet.scheduler.view().proposal.open);
}

TEST(Join, TheNewestViewIsRepeatedUntilConfirmed) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.AddAll();
  FakeShard& shard = *fleet.shards[0];
  const View before = shard.view;
  shard.silent = true;
  CreateTable create;
  create.spec.name = "t";
  fleet.Send(*fleet.workers[0], create);
  EXPECT_TRUE(fleet.workers[0]->tables.empty());  // not yet confirmed
  shard.silent = false;
  fleet.Pass(2);
  EXPECT_GT(shard.view.version, before.version);
  ASSERT_EQ(fleet.workers[0]->tables.size(), 1u);
}

TEST(Join, MessagesGoToTheNewPeerOfANode) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.AddAll();
  FakeWorker& worker = *fleet.workers[0];
  worker.peer = Peer(worker.peer.value + 100);  // reconnected
  fleet.Pass(1);
  fleet.Send(worker, Barrier{.number = 1});
  EXPECT_EQ(worker.barriers, std::vector<std::uint64_t>{1});
}

}  // namespace
}  // namespace tarn::scheduler
