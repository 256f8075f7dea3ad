// Shows how a client joins, adopts views, repeats requests to the scheduler until they are answered, and stops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "tests/unit/worker/client/fake_fleet.h"

namespace tarn::worker {
namespace {

FleetOptions Options() {
  FleetOptions options;
  options.client.nonce = 4711;
  options.client.http = "http://127.0.0.1:80";
  options.tables = {SparseTable("users", 4)};
  return options;
}

TEST(ClientControl, RepeatsJoinUntilWelcome) {
  FakeFleet fleet(Options());
  fleet.client.Start(fleet.now, &fleet.out);
  fleet.Wait(10'000'000);
  const auto joins = BodiesOf<Join>(fleet.TakeSent(kSchedulerPeer));
  EXPECT_EQ(joins.size(), 11u);
  for (const Join& join : joins) {
    EXPECT_EQ(join.nonce, 4711u);
    EXPECT_EQ(join.http, "http://127.0.0.1:80");
  }
  EXPECT_EQ(fleet.client.state(), ClientState::kJoining);

  EXPECT_LT(fleet.client.scheduler().last_message(), fleet.now);
  fleet.FromScheduler(HeartbeatAck{});  // the scheduler is running, but the fleet is not complete
  EXPECT_EQ(fleet.client.scheduler().last_message(), fleet.now);
  EXPECT_EQ(fleet.client.state(), ClientState::kJoining);

  Welcome other = fleet.MakeWelcome();
  other.nonce = 1;  // the nonce of an earlier start
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

TEST(ClientControl, AWelcomeWithoutValidRoutesOrJobIsIgnored) {
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
  fleet.client.Handle(kSchedulerPeer, Message(message), fleet.now);
  message.job = 77;
  message.body = ErrorReply{RequestId(0), ErrorCode::kFenced, "", Epoch(1)};
  fleet.client.Handle(Peer(kFirstAcceptedPeer), Message(message), fleet.now);
  fleet.client.Handle(ShardPeer(ShardId(2)), Message(message), fleet.now);
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
}

std::optional<double> CounterOf(const Heartbeat& beat, const std::string& name) {
  const auto counter = std::ranges::find(beat.counters, name, &Counter::name);
  return counter == beat.counters.end() ? std::nullopt : std::optional(counter->value);
}

TEST(ClientControl, HeartbeatsComeEveryPeriodWithMetrics) {
  FleetOptions options = Options();
  options.heartbeat_seconds = 1;
  FakeFleet fleet(options);
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  fleet.client.SetMetrics(MetricList().Add(WorkerMetric("samples"), 12));
  fleet.Wait(3'500'000);
  const auto beats = BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(beats.size(), 3u);
  for (const Heartbeat& beat : beats) {
    EXPECT_EQ(CounterOf(beat, "samples"), 12);
    EXPECT_EQ(CounterOf(beat, "repeats"), 0) << "the client's own";
  }
}

// A job may be shorter than the metrics period; the summary must count it too.
TEST(ClientControl, TheLastMetricsAreSentBeforeLeave) {
  FleetOptions options = Options();
  options.heartbeat_seconds = 10;
  FakeFleet fleet(options);
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  fleet.client.SetMetrics(MetricList().Add(WorkerMetric("samples"), 12));
  fleet.Leave();
  const auto sent = fleet.TakeSent(kSchedulerPeer);
  ASSERT_EQ(sent.size(), 2u);
  const auto* beat = std::get_if<Heartbeat>(&sent[0].body);
  ASSERT_NE(beat, nullptr);
  EXPECT_EQ(CounterOf(*beat, "samples"), 12);
  EXPECT_TRUE(std::holds_alternative<Leave>(sent[1].body));
}

TEST(ClientControl, ShutdownIsConfirmedAndFailsAllRequests) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.Barrier();
  fleet.TakeSent(kSchedulerPeer);
  fleet.FromScheduler(Shutdown{ErrorCode::kOk, "done"});
  EXPECT_EQ(fleet.client.state(), ClientState::kStopped);
  EXPECT_EQ(BodiesOf<Shutdown>(fleet.TakeSent(kSchedulerPeer)).size(), 1u);
  fleet.Wait(60'000'000);
  EXPECT_TRUE(fleet.out.empty());
  fleet.FromScheduler(Shutdown{ErrorCode::kOk, "done"});  // the client's confirmation was lost
  EXPECT_EQ(BodiesOf<Shutdown>(fleet.TakeSent(kSchedulerPeer)).size(), 1u);
  EXPECT_TRUE(fleet.EventsOf<RequestFailed>().empty()) << "the barrier's end is left to the runtime";
  const RequestId late = fleet.Pull(fleet.MakePlan(TableId(1), {1}), Clock(0));
  const auto failed = fleet.EventsOf<RequestFailed>();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].request, late);
  EXPECT_EQ(failed[0].error.code, ErrorCode::kCancelled);
  EXPECT_EQ(failed[0].error.message, "the job is over: done");
}

TEST(ClientControl, RequestsBeforeTheWelcomeFail) {
  FakeFleet fleet(Options());
  fleet.client.Start(fleet.now, &fleet.out);
  const Plan plan = fleet.MakePlan(TableId(1), {1});
  fleet.Pull(plan, Clock(0));
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  fleet.Tick({});
  fleet.FindTable("users");
  fleet.Barrier();
  fleet.RequestLeases({.want = 1});
  fleet.RequestCheckpoint();
  fleet.Leave();
  const auto failed = fleet.EventsOf<RequestFailed>();
  EXPECT_EQ(failed.size(), 8u);
  for (const RequestFailed& each : failed) EXPECT_EQ(each.error.code, ErrorCode::kUnavailable);
}

// The runtime does so when it loses the scheduler, for example.
TEST(ClientControl, FailAllFailsEachPendingRequestOnce) {
  FakeFleet fleet(Options());
  fleet.job.consistency = {ConsistencyMode::kSsp, 4, ApplyMode::kImmediate};
  fleet.Run();
  const Plan plan = fleet.MakePlan(TableId(1), {1, 2, 3});
  fleet.Pull(plan, Clock(0));
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  fleet.Tick({});
  fleet.CreateTable(SparseTable("items", 8));
  fleet.FindTable("nobody's");
  fleet.Barrier();
  fleet.RequestLeases({.want = 1});
  fleet.RequestCheckpoint();
  fleet.Leave();
  fleet.client.FailAll({ErrorCode::kUnavailable, "gone"});
  EXPECT_EQ(fleet.EventsOf<TableReady>().size(), 1u);
  EXPECT_EQ(fleet.EventsOf<RequestFailed>().size(), 8u);
  fleet.client.FailAll({ErrorCode::kUnavailable, "gone"});
  EXPECT_TRUE(fleet.EventsOf<RequestFailed>().empty());
}

TEST(ClientControl, ATableIsFoundOnceItIsCreated) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.FindTable("users");
  const auto there = fleet.EventsOf<TableReady>();
  ASSERT_EQ(there.size(), 1u);
  EXPECT_EQ(there[0].spec.id, TableId(1));
  fleet.FindTable("items");
  fleet.FindTable("items");
  fleet.FindTable("others");
  EXPECT_TRUE(fleet.EventsOf<TableReady>().empty());
  TableSpec items = SparseTable("items", 8);
  items.id = TableId(2);
  fleet.view.tables.push_back(items);
  fleet.view.version = ViewVersion(2);
  fleet.FromScheduler(ViewUpdate{fleet.view});
  const auto found = fleet.EventsOf<TableReady>();
  ASSERT_EQ(found.size(), 2u);
  for (const TableReady& each : found) EXPECT_EQ(each.spec, items);
}

TEST(ClientControl, ACheckpointRequestIsRepeatedUntilItIsComplete) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  fleet.RequestCheckpoint();
  fleet.RequestCheckpoint();
  fleet.Wait(1'500'000);
  const auto asked = BodiesOf<CheckpointRequest>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(asked.size(), 4u) << "both, and once more";
  EXPECT_NE(asked[0].number, asked[1].number);
  EXPECT_EQ(asked[2].number, asked[0].number);
  fleet.FromScheduler(CheckpointRequest{asked[0].number, ErrorCode::kOk, "waits for worker 1", ""});  // not yet
  fleet.FromScheduler(CheckpointRequest{5, ErrorCode::kOk, "", "of another"});
  EXPECT_TRUE(fleet.EventsOf<CheckpointWritten>().empty());
  EXPECT_TRUE(fleet.client.idle()) << "a worker may leave meanwhile";
  fleet.FromScheduler(CheckpointRequest{asked[1].number, ErrorCode::kIo, "disk full", ""});
  const auto failed = fleet.EventsOf<RequestFailed>();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].error.message, "disk full");
  for (int i = 0; i < 2; ++i) fleet.FromScheduler(CheckpointRequest{asked[0].number, ErrorCode::kOk, "", "ckpt-1"});
  const auto written = fleet.EventsOf<CheckpointWritten>();
  ASSERT_EQ(written.size(), 1u);
  EXPECT_EQ(written[0].directory, "ckpt-1");
  fleet.Wait(20'000'000);
  EXPECT_TRUE(BodiesOf<CheckpointRequest>(fleet.TakeSent(kSchedulerPeer)).empty());
}

TEST(ClientControl, LeavingEndsWithTheSchedulersShutdown) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.Leave();
  EXPECT_TRUE(fleet.EventsOf<LeaveDone>().empty());
  fleet.FromScheduler(Shutdown{ErrorCode::kOk, "left"});
  EXPECT_EQ(fleet.EventsOf<LeaveDone>().size(), 1u);
}

TEST(ClientControl, AClientThatWasNeverWelcomedStopsWithoutAMessage) {
  FakeFleet fleet(Options());
  fleet.client.Start(fleet.now, &fleet.out);
  fleet.TakeSent(kSchedulerPeer);
  fleet.FromScheduler(Shutdown{ErrorCode::kWrongJob, "another version"});
  EXPECT_EQ(fleet.client.state(), ClientState::kStopped);
  EXPECT_EQ(fleet.client.stop_reason().code, ErrorCode::kWrongJob);
  EXPECT_TRUE(fleet.out.empty());
}

TEST(ClientControl, IsFencedByTheSchedulerAShardOrTheView) {
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

// Threads of one program may disagree about a table: each gets the answer to its own request.
TEST(ClientControl, TwoTablesOfOneNameAreRequestedOneAfterTheOther) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  TableSpec four = SparseTable("items", 4), eight = SparseTable("items", 8);
  fleet.CreateTable(four);
  fleet.CreateTable(eight);
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
  fleet.FromScheduler(created);  // repeated
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

TEST(ClientControl, RequestsForTablesBarriersAndLeasesAreRepeatedUntilAnswered) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  TableSpec items = SparseTable("items", 8);
  fleet.CreateTable(items);
  fleet.CreateTable(items);  // equal requests are sent once
  fleet.Barrier();
  fleet.RequestLeases({.want = 2});
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
  ASSERT_EQ(tables.size(), 2u) << "both who asked are answered, once";
  for (const TableReady& table : tables) EXPECT_EQ(table.spec.id, TableId(2));
  EXPECT_EQ(fleet.EventsOf<BarrierDone>().size(), 1u);
  const auto leases = fleet.EventsOf<LeasesGranted>();
  ASSERT_EQ(leases.size(), 1u);
  EXPECT_TRUE(leases[0].reply.finished);
  EXPECT_TRUE(fleet.client.idle());
  fleet.Wait(20'000'000);
  EXPECT_TRUE(fleet.TakeSent(kSchedulerPeer).empty());
}

TEST(ClientControl, LeasesAreRequestedOneAfterTheOther) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  fleet.RequestLeases({.want = 2});
  fleet.RequestLeases({.want = 3});
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

// A header of a message is limited to 8 MiB; a report with logits may have 640 KiB.
TEST(ClientControl, ReportsThatExceedAMessageAreSentInSeveral) {
  const auto reports = [](std::uint32_t count, std::uint32_t buckets) {
    std::vector<LeaseDone> all(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      all[i].lease = LeaseId(i + 1);
      for (std::uint32_t bucket = 0; bucket < buckets; ++bucket) all[i].quality.buckets.push_back({bucket, {1, 1}});
    }
    return all;
  };
  struct Case {
    std::uint32_t reports, buckets;
    std::vector<std::size_t> parts;
  };
  for (const Case& each : {Case{0, 0, {0}}, Case{64, 0, {64}}, Case{65, 0, {64, 1}}, Case{6, Quality::kBuckets, {6}},
                           Case{15, Quality::kBuckets, {6, 6, 3}}}) {
    FakeFleet fleet(Options());
    fleet.Run();
    fleet.TakeSent(kSchedulerPeer);
    LeaseRequest request;
    request.want = 2;
    request.rows = {10, 20, 30};
    request.done = reports(each.reports, each.buckets);
    fleet.RequestLeases(request);
    std::uint64_t lease = 0;
    for (std::size_t part = 0; part < each.parts.size(); ++part) {
      const auto sent = BodiesOf<LeaseRequest>(fleet.TakeSent(kSchedulerPeer));
      ASSERT_EQ(sent.size(), 1u);
      EXPECT_EQ(sent[0].number, part + 1);
      EXPECT_EQ(sent[0].want, part + 1 == each.parts.size() ? 2u : 0u);
      EXPECT_EQ(sent[0].rows, request.rows);
      EXPECT_EQ(sent[0].done.size(), each.parts[part]);
      for (const LeaseDone& done : sent[0].done) EXPECT_EQ(done.lease, LeaseId(++lease));
      EXPECT_TRUE(fleet.EventsOf<LeasesGranted>().empty());
      LeaseReply reply;
      reply.number = part + 1;
      reply.finished = part + 1 == each.parts.size();
      fleet.FromScheduler(reply);
    }
    EXPECT_EQ(lease, each.reports);
    const auto granted = fleet.EventsOf<LeasesGranted>();
    ASSERT_EQ(granted.size(), 1u);
    EXPECT_TRUE(granted[0].reply.finished);
    EXPECT_TRUE(fleet.client.idle());
  }
}

// For example, by two threads of a program; their answers come in order.
TEST(ClientControl, BarriersAreEnteredOneAfterTheOther) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.TakeSent(kSchedulerPeer);
  fleet.Barrier();
  fleet.Barrier();
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
  EXPECT_TRUE(fleet.client.scheduler().Check(fleet.now, "tcp://s:1"));  // whoever joins has a limit of its own
  fleet.FromScheduler(fleet.MakeWelcome());
  fleet.Wait(9'999'999);
  EXPECT_TRUE(fleet.client.scheduler().Check(fleet.now, "tcp://s:1"));
  fleet.Wait(1);
  const Status lost = fleet.client.scheduler().Check(fleet.now, "tcp://s:1");
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(lost.error().message.starts_with("the scheduler at tcp://s:1 has been silent for 10.0 seconds"))
      << lost.error().message;
  fleet.FromScheduler(HeartbeatAck{ViewVersion(1)});
  EXPECT_TRUE(fleet.client.scheduler().Check(fleet.now, "tcp://s:1"));
}

// The process was paused together with the whole fleet, so it received no messages.
TEST(ClientControl, APauseOfTheProcessIsNoSilenceOfTheScheduler) {
  FleetOptions options = Options();
  options.lease_seconds = 5;
  options.heartbeat_seconds = 2;
  FakeFleet fleet(options);
  fleet.Run();
  fleet.Wait(4'000'000);
  fleet.now += 3'600'000'000;
  EXPECT_TRUE(fleet.client.scheduler().Check(fleet.now, "tcp://s:1")) << "before its first step";
  EXPECT_EQ(fleet.client.scheduler().Silence(fleet.now), 0);
  fleet.Wait(9'999'999);
  EXPECT_TRUE(fleet.client.scheduler().Check(fleet.now, "tcp://s:1"));
  fleet.Wait(1);
  EXPECT_FALSE(fleet.client.scheduler().Check(fleet.now, "tcp://s:1")) << "it is awake now, and hears nobody";
}

TEST(ClientControl, LeavingDoesNotWaitForPullsOfClocksThatNeverBegin) {
  FakeFleet fleet(Options());
  fleet.Run();
  const Plan plan = fleet.MakePlan(TableId(1), {1, 2, 3});
  fleet.Tick(std::nullopt);
  const RequestId ahead = fleet.Pull(plan, Clock(3)), now = fleet.Pull(plan, Clock(1));
  fleet.Leave();
  const auto failed = fleet.EventsOf<RequestFailed>();
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].request, ahead);
  EXPECT_EQ(failed[0].error.code, ErrorCode::kCancelled);
  EXPECT_EQ(failed[0].error.message, "this worker leaves at clock 1: a pull for a later clock is not answered");
  EXPECT_TRUE(BodiesOf<Leave>(fleet.TakeSent(kSchedulerPeer)).empty()) << "the other pull is not answered";
  const RequestId late = fleet.Pull(plan, Clock(2));
  EXPECT_EQ(fleet.EventsOf<RequestFailed>().back().request, late) << "likewise a pull that comes while it leaves";
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PullDone>().back().request, now);
  EXPECT_EQ(BodiesOf<Leave>(fleet.TakeSent(kSchedulerPeer)).size(), 1u);
}

TEST(ClientControl, LeavesOnlyWhenNothingIsPendingAndRepeatsLeave) {
  FakeFleet fleet(Options());
  fleet.Run();
  const Plan plan = fleet.MakePlan(TableId(1), {1, 2, 3});
  fleet.Push(plan, fleet.Gradients(plan), Clock(0));
  fleet.Tick(DataPosition{LeaseId(3), 64});
  fleet.Leave();
  EXPECT_TRUE(BodiesOf<Leave>(fleet.TakeSent(kSchedulerPeer)).empty());
  fleet.Exchange();
  fleet.Wait(1'500'000);
  const auto leaves = BodiesOf<Leave>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(leaves.size(), 2u);
  EXPECT_EQ(leaves[0].clock, Clock(1));
  EXPECT_EQ(leaves[0].position, (DataPosition{LeaseId(3), 64}));
  // Shards may learn of the worker's end before it does.
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
      fleet.Pull(plan, fleet.client.clock());
      fleet.Push(plan, fleet.Gradients(plan), fleet.client.clock());
      fleet.Tick(DataPosition{LeaseId(1), std::uint64_t(i)});
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
