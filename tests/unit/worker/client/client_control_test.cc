// Shows how a client joins, follows views, repeats what it asks of the scheduler until it is answered, and stops.
#include <gtest/gtest.h>

#include "tests/unit/worker/client/fake_fleet.h"

namespace tarn::worker {
namespace {

FleetOptions Options() {
  FleetOptions options;
  options.client.nonce = 4711;
  options.tables = {SparseTable("users", 4)};
  return options;
}

TEST(ClientControl, JoinsAgainAndAgainUntilWelcome) {
  FakeFleet fleet(Options());
  fleet.client.Start(fleet.now, &fleet.out);
  fleet.Wait(10'000'000);
  const auto joins = BodiesOf<Join>(fleet.TakeSent(kSchedulerPeer));
  EXPECT_EQ(joins.size(), 11u);
  for (const Join& join : joins) EXPECT_EQ(join.nonce, 4711u);
  EXPECT_EQ(fleet.client.state(), ClientState::kJoining);

  EXPECT_LT(fleet.client.scheduler_heard(), fleet.now);
  fleet.FromScheduler(HeartbeatAck{});  // it is there, but the fleet is not
  EXPECT_EQ(fleet.client.scheduler_heard(), fleet.now);
  EXPECT_EQ(fleet.client.state(), ClientState::kJoining);

  Welcome other = fleet.MakeWelcome();
  other.nonce = 1;  // of an earlier start
  fleet.FromScheduler(other);
  EXPECT_EQ(fleet.client.state(), ClientState::kJoining);

  fleet.FromScheduler(fleet.MakeWelcome());
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
  const auto sent = fleet.TakeSent(kSchedulerPeer);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].job, 77u);
  EXPECT_EQ(sent[0].sender.incarnation, Incarnation(7));
  EXPECT_EQ(std::get<Heartbeat>(sent[0].body).view, ViewVersion(1));
  fleet.Wait(10'000'000);
  EXPECT_TRUE(BodiesOf<Join>(fleet.TakeSent(kSchedulerPeer)).empty());
}

TEST(ClientControl, AWelcomeWithoutUsableRoutesOrJobIsNoWelcome) {
  FakeFleet fleet(Options());
  fleet.client.Start(fleet.now, &fleet.out);
  Welcome bad = fleet.MakeWelcome();
  bad.view.routes.owners.pop_back();
  fleet.FromScheduler(bad);
  bad = fleet.MakeWelcome();
  bad.view.routes.owners[0] = ShardId(2);
  fleet.FromScheduler(bad);
  EXPECT_EQ(fleet.client.state(), ClientState::kJoining);
  bad = fleet.MakeWelcome();
  bad.job_text = "[job\n";
  fleet.FromScheduler(bad);
  EXPECT_EQ(fleet.client.state(), ClientState::kStopped);
  EXPECT_NE(fleet.client.stop_reason().code, ErrorCode::kOk);
}

TEST(ClientControl, ConfirmsANewerViewAtOnceAndIgnoresAnOlderOne) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  fleet.view.version = ViewVersion(5);
  fleet.FromScheduler(ViewUpdate{fleet.view});
  auto beats = BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(beats.size(), 1u);
  EXPECT_EQ(beats[0].view, ViewVersion(5));
  View older = fleet.view;
  older.version = ViewVersion(4);
  older.routes.endpoints[0] = "old";
  fleet.FromScheduler(ViewUpdate{older});
  EXPECT_TRUE(fleet.TakeSent(kSchedulerPeer).empty());
  EXPECT_EQ(fleet.client.view().routes.endpoints[0], "fake://0");
}

TEST(ClientControl, MessagesOfAnotherJobOrPeerAreIgnored) {
  FakeFleet fleet(Options());
  fleet.Run();
  Message message;
  message.job = 78;
  message.body = Shutdown{ErrorCode::kInternal, "not ours"};
  fleet.client.OnMessage(kSchedulerPeer, message, fleet.now, &fleet.out);
  message.job = 77;
  message.body = ErrorReply{RequestId(0), ErrorCode::kFenced, "", Epoch(1)};
  fleet.client.OnMessage(Peer(kFirstAcceptedPeer), message, fleet.now, &fleet.out);
  fleet.client.OnMessage(ShardPeer(ShardId(2)), message, fleet.now, &fleet.out);
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
}

TEST(ClientControl, HeartbeatsComeEveryPeriodWithMetrics) {
  FleetOptions options = Options();
  options.heartbeat_seconds = 1;
  FakeFleet fleet(options);
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  fleet.client.SetMetrics({{"samples", 12}});
  fleet.Wait(3'500'000);
  const auto beats = BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(beats.size(), 3u);
  ASSERT_EQ(beats[0].counters.size(), 1u);
  EXPECT_EQ(beats[0].counters[0].name, "samples");
}

// A job may be shorter than the period: the summary counts what leaves within it, too.
TEST(ClientControl, TheLastMetricsGoOutBeforeLeave) {
  FleetOptions options = Options();
  options.heartbeat_seconds = 10;
  FakeFleet fleet(options);
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  fleet.client.SetMetrics({{"pull_bytes", 12}});
  fleet.client.Leave(fleet.now, &fleet.out);
  const auto sent = fleet.TakeSent(kSchedulerPeer);
  ASSERT_EQ(sent.size(), 2u);
  const auto* beat = std::get_if<Heartbeat>(&sent[0].body);
  ASSERT_NE(beat, nullptr);
  ASSERT_EQ(beat->counters.size(), 1u);
  EXPECT_EQ(beat->counters[0].value, 12);
  EXPECT_TRUE(std::holds_alternative<Leave>(sent[1].body));
}

TEST(ClientControl, ShutdownIsUnderstoodAndEndsEverything) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.client.Barrier(fleet.now, &fleet.out);
  fleet.TakeSent(kSchedulerPeer);
  fleet.FromScheduler(Shutdown{ErrorCode::kOk, "done"});
  EXPECT_EQ(fleet.client.state(), ClientState::kStopped);
  EXPECT_EQ(BodiesOf<Shutdown>(fleet.TakeSent(kSchedulerPeer)).size(), 1u);
  fleet.Wait(60'000'000);
  EXPECT_TRUE(fleet.out.empty());
  fleet.FromScheduler(Shutdown{ErrorCode::kOk, "done"});  // our word was lost
  EXPECT_EQ(BodiesOf<Shutdown>(fleet.TakeSent(kSchedulerPeer)).size(), 1u);
  EXPECT_EQ(fleet.client.Pull(fleet.MakePlan(TableId(1), {1}), Clock(0), fleet.now, &fleet.out), RequestId(0));
}

TEST(ClientControl, OneThatWasNeverWelcomedStopsWithoutAWord) {
  FakeFleet fleet(Options());
  fleet.client.Start(fleet.now, &fleet.out);
  fleet.TakeSent(kSchedulerPeer);
  fleet.FromScheduler(Shutdown{ErrorCode::kWrongJob, "another version"});
  EXPECT_EQ(fleet.client.state(), ClientState::kStopped);
  EXPECT_EQ(fleet.client.stop_reason().code, ErrorCode::kWrongJob);
  EXPECT_TRUE(fleet.out.empty());
}

TEST(ClientControl, FencedByTheSchedulerByAShardOrByTheView) {
  {
    FakeFleet fleet(Options());
    fleet.Run();
    fleet.TakeSent(kSchedulerPeer);
    fleet.FromScheduler(Shutdown{ErrorCode::kFenced, "too late"});
    EXPECT_EQ(fleet.client.state(), ClientState::kFenced);
    EXPECT_TRUE(fleet.TakeSent(kSchedulerPeer).empty());
  }
  {
    FakeFleet fleet(Options());
    fleet.Run();
    fleet.FromShard(1, ErrorReply{RequestId(0), ErrorCode::kFenced, "over", Epoch(1)});
    EXPECT_EQ(fleet.client.state(), ClientState::kFenced);
  }
  {
    FakeFleet fleet(Options());
    fleet.Run();
    fleet.view.version = ViewVersion(2);
    fleet.view.workers[0].state = WorkerState::kFencing;
    fleet.FromScheduler(ViewUpdate{fleet.view});
    EXPECT_EQ(fleet.client.state(), ClientState::kFenced);
  }
  {
    FakeFleet fleet(Options());
    fleet.Run();  // an answer to an earlier incarnation of ours
    fleet.FromShard(1, ErrorReply{RequestId(5), ErrorCode::kFenced, "over", Epoch(1)});
    EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
  }
}

// Threads of one program may disagree about a table: each hears of its own request.
TEST(ClientControl, TwoTablesOfOneNameAreAskedForOneAfterTheOther) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  TableSpec four = SparseTable("items", 4), eight = SparseTable("items", 8);
  fleet.client.CreateTable(four, fleet.now, &fleet.out);
  fleet.client.CreateTable(eight, fleet.now, &fleet.out);
  const auto wants = [&](std::uint32_t dim) {
    const auto asked = BodiesOf<CreateTable>(fleet.TakeSent(kSchedulerPeer));
    return asked.size() == 1 && asked[0].spec.dim == dim;
  };
  EXPECT_TRUE(wants(4));
  const auto with_id = [](TableSpec spec) {
    spec.id = TableId(2);
    return spec;
  };
  const CreateTable created{with_id(four), ErrorCode::kOk, ""};
  fleet.FromScheduler(created);
  EXPECT_TRUE(wants(8));
  fleet.FromScheduler(created);  // once more
  EXPECT_FALSE(fleet.client.idle());
  fleet.FromScheduler(CreateTable{with_id(eight), ErrorCode::kAlreadyExists, "another shape"});
  EXPECT_TRUE(fleet.client.idle());
  const auto ready = fleet.EventsOf<TableReady>();
  ASSERT_EQ(ready.size(), 2u);
  EXPECT_EQ(ready[0].wanted, four);
  EXPECT_EQ(ready[0].code, ErrorCode::kOk);
  EXPECT_EQ(ready[1].wanted, eight);
  EXPECT_EQ(ready[1].code, ErrorCode::kAlreadyExists);
}

TEST(ClientControl, TablesBarriersAndLeasesAreAskedForUntilAnswered) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  TableSpec items = SparseTable("items", 8);
  fleet.client.CreateTable(items, fleet.now, &fleet.out);
  fleet.client.CreateTable(items, fleet.now, &fleet.out);  // the same again is one request
  fleet.client.Barrier(fleet.now, &fleet.out);
  fleet.client.RequestLeases({.want = 2}, fleet.now, &fleet.out);
  EXPECT_FALSE(fleet.client.idle());
  fleet.Wait(3'500'000);  // at once, after 1 s and after 2 s more
  auto sent = fleet.TakeSent(kSchedulerPeer);
  EXPECT_EQ(BodiesOf<CreateTable>(sent).size(), 3u);
  EXPECT_EQ(BodiesOf<Barrier>(sent).size(), 3u);
  const auto requests = BodiesOf<LeaseRequest>(sent);
  ASSERT_EQ(requests.size(), 3u);
  for (const LeaseRequest& request : requests) EXPECT_EQ(request.number, 1u);

  items.id = TableId(2);
  fleet.FromScheduler(CreateTable{items, ErrorCode::kOk, ""});
  fleet.FromScheduler(CreateTable{items, ErrorCode::kOk, ""});
  fleet.FromScheduler(Barrier{2});  // not entered yet
  fleet.FromScheduler(Barrier{1});
  LeaseReply reply;
  reply.number = 2;
  fleet.FromScheduler(reply);
  reply.number = 1;
  reply.finished = true;
  fleet.FromScheduler(reply);
  fleet.FromScheduler(reply);
  const auto tables = fleet.EventsOf<TableReady>();
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].spec.id, TableId(2));
  const auto barriers = fleet.EventsOf<BarrierDone>();
  ASSERT_EQ(barriers.size(), 1u);
  EXPECT_EQ(barriers[0].number, 1u);
  const auto leases = fleet.EventsOf<LeasesGranted>();
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_TRUE(leases[0].reply.finished);
  EXPECT_TRUE(fleet.client.idle());
  fleet.Wait(20'000'000);
  EXPECT_TRUE(fleet.TakeSent(kSchedulerPeer).empty());
}

TEST(ClientControl, LeasesAreAskedForOneAfterTheOther) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  fleet.client.RequestLeases({.want = 2}, fleet.now, &fleet.out);
  fleet.client.RequestLeases({.want = 3}, fleet.now, &fleet.out);
  fleet.Wait(1'500'000);
  auto requests = BodiesOf<LeaseRequest>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(requests.size(), 2u);
  for (const LeaseRequest& request : requests) EXPECT_EQ(request.number, 1u);
  EXPECT_FALSE(fleet.client.idle());
  LeaseReply reply;
  reply.number = 1;
  fleet.FromScheduler(reply);
  requests = BodiesOf<LeaseRequest>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].number, 2u);
  EXPECT_EQ(requests[0].want, 3u);
  reply.number = 2;
  fleet.FromScheduler(reply);
  EXPECT_EQ(fleet.EventsOf<LeasesGranted>().size(), 2u);
  EXPECT_TRUE(fleet.client.idle());
}

// Two threads of a program, say: their answers come in order.
TEST(ClientControl, BarriersAreEnteredOneAfterTheOther) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  fleet.client.Barrier(fleet.now, &fleet.out);
  fleet.client.Barrier(fleet.now, &fleet.out);
  for (std::uint64_t number : {1, 2}) {
    const auto entered = BodiesOf<Barrier>(fleet.TakeSent(kSchedulerPeer));
    ASSERT_EQ(entered.size(), 1u);
    EXPECT_EQ(entered[0].number, number);
    fleet.FromScheduler(Barrier{number});
  }
  EXPECT_EQ(fleet.EventsOf<BarrierDone>().size(), 2u);
  EXPECT_TRUE(fleet.client.idle());
}

TEST(ClientControl, ASchedulerSilentForTwoLeasesIsLost) {
  FleetOptions options = Options();
  options.lease_seconds = 5;
  options.heartbeat_seconds = 2;
  FakeFleet fleet(options);
  fleet.client.Start(fleet.now, &fleet.out);
  fleet.Wait(60'000'000);
  EXPECT_TRUE(fleet.client.CheckScheduler(fleet.now, "tcp://s:1"));  // whoever joins has a limit of its own
  fleet.FromScheduler(fleet.MakeWelcome());
  fleet.Wait(9'999'999);
  EXPECT_TRUE(fleet.client.CheckScheduler(fleet.now, "tcp://s:1"));
  fleet.Wait(1);
  const Status lost = fleet.client.CheckScheduler(fleet.now, "tcp://s:1");
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(lost.error().message.starts_with("the scheduler at tcp://s:1 has not been heard for 10.0 seconds"))
      << lost.error().message;
  fleet.FromScheduler(HeartbeatAck{ViewVersion(1)});
  EXPECT_TRUE(fleet.client.CheckScheduler(fleet.now, "tcp://s:1"));
}

// Stopped with all of its fleet, it has heard nobody because it did not listen.
TEST(ClientControl, WhatItSleptIsNoSilenceOfTheScheduler) {
  FleetOptions options = Options();
  options.lease_seconds = 5;
  options.heartbeat_seconds = 2;
  FakeFleet fleet(options);
  fleet.Run();
  fleet.Wait(4'000'000);
  fleet.now += 3'600'000'000;
  EXPECT_TRUE(fleet.client.CheckScheduler(fleet.now, "tcp://s:1")) << "before its first step";
  EXPECT_EQ(fleet.client.SchedulerSilence(fleet.now), 0);
  fleet.Wait(9'999'999);
  EXPECT_TRUE(fleet.client.CheckScheduler(fleet.now, "tcp://s:1"));
  fleet.Wait(1);
  EXPECT_FALSE(fleet.client.CheckScheduler(fleet.now, "tcp://s:1")) << "it is awake now, and hears nobody";
}

TEST(ClientControl, LeavesOnlyWhenNothingIsPendingAndThenInsists) {
  FakeFleet fleet(Options());
  fleet.Run();
  const Plan plan = fleet.MakePlan(TableId(1), {1, 2, 3});
  fleet.client.Push(plan, fleet.Gradients(plan), Clock(0), fleet.now, &fleet.out);
  fleet.client.Tick(DataPosition{LeaseId(3), 64}, fleet.now, &fleet.out);
  fleet.client.Leave(fleet.now, &fleet.out);
  EXPECT_TRUE(BodiesOf<Leave>(fleet.TakeSent(kSchedulerPeer)).empty());
  fleet.Exchange();
  fleet.Wait(1'500'000);
  const auto leaves = BodiesOf<Leave>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(leaves.size(), 2u);
  EXPECT_EQ(leaves[0].clock, Clock(1));
  EXPECT_EQ(leaves[0].position, (DataPosition{LeaseId(3), 64}));
  // Shards may hear of its end before it does.
  fleet.FromShard(0, ErrorReply{RequestId(0), ErrorCode::kFenced, "over", Epoch(1)});
  fleet.view.version = ViewVersion(2);
  fleet.view.workers[0].state = WorkerState::kEnded;
  fleet.FromScheduler(ViewUpdate{fleet.view});
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
  fleet.FromScheduler(Shutdown{ErrorCode::kOk, "left"});
  EXPECT_EQ(fleet.client.state(), ClientState::kStopped);
}

TEST(ClientControl, SameInputsGiveTheSameStates) {
  const auto run = [] {
    FakeFleet fleet(Options());
    fleet.Run();
    std::uint64_t hash = 0;
    const Plan plan = fleet.MakePlan(TableId(1), {1, 2, 3, 99, 1234});
    for (int i = 0; i < 20; ++i) {
      fleet.client.Pull(plan, fleet.client.clock(), fleet.now, &fleet.out);
      fleet.client.Push(plan, fleet.Gradients(plan), fleet.client.clock(), fleet.now, &fleet.out);
      fleet.client.Tick(DataPosition{LeaseId(1), std::uint64_t(i)}, fleet.now, &fleet.out);
      if (i % 3 == 0) fleet.Wait(1'200'000);
      fleet.Exchange();
      hash = hash * 31 + fleet.client.StateHash();
    }
    return hash;
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace tarn::worker
