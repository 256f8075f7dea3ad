// Shows that ticks are sent only after all acknowledgements, reach every shard, wait for proposals, and that a
// checkpoint at a clock gets the position of exactly that clock (rules C1, C5, M1, K1, N5).
#include <gtest/gtest.h>

#include "core/hash.h"
#include "tests/unit/worker/client/fake_fleet.h"

namespace tarn::worker {
namespace {

constexpr TableId kUsers{1};

FleetOptions Options() {
  FleetOptions options;
  options.client.nonce = 1;
  options.start = Clock(100);
  options.tables = {SparseTable("users", 4)};
  return options;
}

FleetOptions WithBackupWorker() {
  FleetOptions options = Options();
  options.tables[0].consistency.backup_workers = 1;
  return options;
}

std::vector<Key> Keys(std::size_t n) {
  std::vector<Key> keys(n);
  for (std::size_t i = 0; i < n; ++i) keys[i] = Mix64(i + 1);
  return keys;
}

std::vector<Clock> TicksTo(FakeFleet* fleet, std::uint32_t shard) {
  std::vector<Clock> clocks;
  for (const Tick& tick : BodiesOf<Tick>(fleet->TakeSent(ShardPeer(ShardId(shard))))) clocks.push_back(tick.clock);
  return clocks;
}

void TickTimes(FakeFleet* fleet, int times) {
  for (int i = 0; i < times; ++i) fleet->Tick(DataPosition{LeaseId(1), fleet->client.clock().value + 1});
}

TEST(ClientTick, WaitsForEveryAcknowledgementOfEarlierClocks) {
  FakeFleet fleet(Options());
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(30));
  fleet.Push(plan, fleet.Gradients(plan), Clock(100));
  TickTimes(&fleet, 1);
  EXPECT_EQ(fleet.client.clock(), Clock(101));
  // A push of the next clock does not hold the tick of this one back.
  std::vector<Message> first[2];
  for (std::uint32_t i = 0; i < 2; ++i) first[i] = fleet.TakeSent(ShardPeer(ShardId(i)));
  fleet.Push(plan, fleet.Gradients(plan), Clock(101));
  for (std::uint32_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(TicksTo(&fleet, 0).empty());
    EXPECT_TRUE(TicksTo(&fleet, 1).empty());
    for (const Message& m : first[i])
      for (Body& body : fleet.shards[i].Handle(m)) fleet.FromShard(i, std::move(body));
  }
  EXPECT_EQ(TicksTo(&fleet, 0), (std::vector<Clock>{Clock(101)}));
  EXPECT_EQ(TicksTo(&fleet, 1), (std::vector<Clock>{Clock(101)}));
}

// Rule C8. The rows for clock 100 come from the later clock 103 of one shard; both shards learn where the worker goes
// on.
TEST(ClientTick, ALateWorkerContinuesAtTheOpenClock) {
  FakeFleet fleet(WithBackupWorker());
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(30));
  fleet.shards[1].told_minimum = Clock(103);
  fleet.Pull(plan, Clock(100));
  fleet.Exchange();
  EXPECT_EQ(fleet.client.clock(), Clock(103));
  EXPECT_EQ(fleet.client.counters().skipped_clocks, 3u);
  for (FakeShard& shard : fleet.shards) EXPECT_EQ(shard.ticked, Clock(103));
  // A second table whose rows come later still belongs to the same batch.
  fleet.shards[1].told_minimum = Clock(104);
  fleet.Pull(plan, Clock(100));
  fleet.Exchange();
  EXPECT_EQ(fleet.client.clock(), Clock(104));
  fleet.Push(plan, fleet.Gradients(plan), fleet.client.clock());  // like a program that names no clock
  for (std::uint32_t shard = 0; shard < 2; ++shard)
    for (const Push& push : BodiesOf<Push>(fleet.TakeSent(ShardPeer(ShardId(shard))))) {
      EXPECT_EQ(push.clock, Clock(104));
      for (const Section& section : OnlyTable(push).keys.sections)
        EXPECT_NE(section.version, kNoVersion) << "of the pull";
    }
  TickTimes(&fleet, 1);
  EXPECT_EQ(fleet.client.clock(), Clock(105));
  EXPECT_EQ(fleet.client.counters().skipped_clocks, 4u);
}

// Rows that a program pulled for a later clock say that it is late, but not at which clock it computes.
TEST(ClientTick, AWorkerThatPulledAheadSkipsWithItsNextTick) {
  FakeFleet fleet(WithBackupWorker());
  fleet.Run();
  const Plan plan = fleet.MakePlan(kUsers, Keys(30));
  for (FakeShard& shard : fleet.shards) shard.told_minimum = Clock(107);
  fleet.Pull(plan, Clock(101));
  fleet.Exchange();
  EXPECT_EQ(fleet.client.clock(), Clock(100));
  TickTimes(&fleet, 1);
  EXPECT_EQ(fleet.client.clock(), Clock(107));
}

TEST(ClientTick, IsRepeatedToEachShardUntilItIsAcknowledged) {
  FakeFleet fleet(Options());
  fleet.Run();
  TickTimes(&fleet, 1);
  EXPECT_EQ(TicksTo(&fleet, 0).size(), 1u);
  EXPECT_EQ(TicksTo(&fleet, 1).size(), 1u);
  fleet.FromShard(0, TickAck{Clock(101)});
  EXPECT_TRUE(fleet.EventsOf<TickDone>().empty());
  fleet.FromShard(1, TickAck{Clock(500)});  // a clock that was never sent
  fleet.Wait(7'500'000);
  EXPECT_EQ(TicksTo(&fleet, 0).size(), 0u);
  EXPECT_EQ(TicksTo(&fleet, 1).size(), 3u);
  EXPECT_FALSE(fleet.client.idle());
  fleet.FromShard(1, TickAck{Clock(101)});
  fleet.FromShard(1, TickAck{Clock(101)});
  const auto done = fleet.EventsOf<TickDone>();
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].clock, Clock(101));
  EXPECT_TRUE(fleet.client.idle());
  fleet.Wait(20'000'000);
  EXPECT_TRUE(TicksTo(&fleet, 1).empty());
}

TEST(ClientTick, TheAcknowledgementOfANewerTickCompletesOlderOnes) {
  FakeFleet fleet(Options());
  fleet.Run();
  TickTimes(&fleet, 3);
  fleet.Wait(1'000'000);
  EXPECT_EQ(TicksTo(&fleet, 0), (std::vector<Clock>{Clock(101), Clock(102), Clock(103), Clock(103)}));
  fleet.FromShard(0, TickAck{Clock(103)});
  fleet.FromShard(1, TickAck{Clock(101)});
  EXPECT_EQ(fleet.EventsOf<TickDone>().size(), 1u);
  fleet.FromShard(1, TickAck{Clock(103)});
  EXPECT_EQ(fleet.EventsOf<TickDone>().size(), 2u);
}

TEST(ClientTick, JumpsForwardButNeverBack) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.TickTo(Clock(150), DataPosition{LeaseId(1), 1});
  fleet.TickTo(Clock(150), DataPosition{LeaseId(1), 2});
  fleet.TickTo(Clock(120), DataPosition{LeaseId(1), 3});
  EXPECT_EQ(fleet.client.clock(), Clock(150));
  EXPECT_EQ(fleet.EventsOf<TickDone>().size(), 2u) << "those that are not ahead, at once";
  EXPECT_EQ(fleet.client.acked_clock(), fleet.options.start);
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<TickDone>().size(), 1u);
  EXPECT_EQ(fleet.client.acked_clock(), Clock(150));
  EXPECT_EQ(fleet.shards[1].ticked, Clock(150));
}

TEST(ClientTick, ATickWithoutAPositionKeepsTheLastOne) {
  FleetOptions options = Options();
  options.heartbeat_seconds = 1;
  FakeFleet fleet(options);
  fleet.Run();
  const auto position_sent = [&fleet] {
    const auto ticks = BodiesOf<Tick>(fleet.TakeSent(ShardPeer(ShardId(0))));
    return ticks.empty() ? DataPosition{LeaseId(99), 99} : ticks.back().position;
  };
  fleet.Tick({});
  EXPECT_EQ(position_sent(), DataPosition());  // not in a lease yet
  fleet.Tick(DataPosition{LeaseId(3), 64});
  EXPECT_EQ(position_sent(), (DataPosition{LeaseId(3), 64}));
  fleet.Tick({});
  EXPECT_EQ(position_sent(), (DataPosition{LeaseId(3), 64}));
  fleet.TickTo(Clock(150), {});
  EXPECT_EQ(position_sent(), (DataPosition{LeaseId(3), 64}));
  const Plan plan = fleet.MakePlan(kUsers, Keys(3));
  fleet.Push(plan, fleet.Gradients(plan), Clock(150));
  fleet.Tick({});
  for (std::uint32_t i = 0; i < 2; ++i) fleet.FromShard(i, TickAck{Clock(150)});
  fleet.Exchange();
  fleet.TakeSent(kSchedulerPeer);
  fleet.Wait(1'000'000);
  const auto beats = BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(beats.size(), 1u);
  EXPECT_EQ(beats[0].acked_clock, Clock(151));
  EXPECT_EQ(beats[0].position, (DataPosition{LeaseId(3), 64}));
}

// The shard answers each tick with this, for up to `us`.
void RefuseTicks(FakeFleet* fleet, const ErrorReply& error, TimeUs us) {
  const TimeUs end = fleet->now + us;
  while (fleet->now < end && fleet->client.state() == ClientState::kRunning) {
    for (std::size_t i = TicksTo(fleet, 1).size(); i > 0; --i) fleet->FromShard(1, error);
    fleet->FromScheduler(HeartbeatAck{ViewVersion(1)});
    fleet->Wait(100'000);
  }
}

TEST(ClientTick, ATickWithATransientRefusalIsRepeatedForTwoLeases) {
  FleetOptions options = Options();
  options.lease_seconds = 5;
  options.heartbeat_seconds = 2;
  FakeFleet fleet(options);
  fleet.Run();
  TickTimes(&fleet, 1);
  const ErrorReply error{RequestId(0), ErrorCode::kUnavailable, "incarnation 7 is not known", Epoch(1)};
  RefuseTicks(&fleet, error, 9'500'000);
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
  RefuseTicks(&fleet, error, 10'000'000);
  EXPECT_EQ(fleet.client.state(), ClientState::kStopped);
  EXPECT_EQ(fleet.client.stop_reason().code, ErrorCode::kUnavailable);
  const std::string& reason = fleet.client.stop_reason().reason;
  EXPECT_TRUE(reason.starts_with("shard 1 has refused the tick to clock 101 for 1")) << reason;
  EXPECT_TRUE(reason.ends_with("seconds: incarnation 7 is not known")) << reason;
}

TEST(ClientTick, ARefusalThatPassedIsForgotten) {
  FleetOptions options = Options();
  options.lease_seconds = 5;
  options.heartbeat_seconds = 2;
  FakeFleet fleet(options);
  fleet.Run();
  for (int i = 0; i < 4; ++i) {
    TickTimes(&fleet, 1);
    RefuseTicks(&fleet, {RequestId(0), ErrorCode::kStaleEpoch, "", Epoch(1)}, 6'000'000);
    fleet.FromShard(0, TickAck{fleet.client.clock()});
    fleet.FromShard(1, TickAck{fleet.client.clock()});
  }
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
  EXPECT_EQ(fleet.EventsOf<TickDone>().size(), 4u);
}

TEST(ClientTick, APermanentRefusalEndsTheClientAtOnce) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.FromShard(1, ErrorReply{RequestId(0), ErrorCode::kInvalidArgument, "stray", Epoch(1)});  // of no tick
  EXPECT_EQ(fleet.client.state(), ClientState::kRunning);
  TickTimes(&fleet, 1);
  fleet.FromShard(1, ErrorReply{RequestId(0), ErrorCode::kInvalidArgument, "too far ahead", Epoch(1)});
  EXPECT_EQ(fleet.client.state(), ClientState::kStopped);
  EXPECT_EQ(fleet.client.stop_reason().reason, "shard 1 has refused the tick to clock 101: too far ahead");
}

TEST(ClientTick, HeartbeatsReportTheAcknowledgedClockAndItsPosition) {
  FleetOptions options = Options();
  options.heartbeat_seconds = 1;
  FakeFleet fleet(options);
  fleet.Run();
  TickTimes(&fleet, 1);
  fleet.Exchange();
  TickTimes(&fleet, 1);  // not acknowledged
  fleet.TakeSent(kSchedulerPeer);
  fleet.Wait(1'000'000);
  const auto beats = BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(beats.size(), 1u);
  EXPECT_EQ(beats[0].acked_clock, Clock(101));
  EXPECT_EQ(beats[0].position, (DataPosition{LeaseId(1), 101}));
  EXPECT_EQ(beats[0].clock, Clock(102));
}

TEST(ClientTick, AProposalIsAnsweredWithTheClockAndCapsTicksUntilItCloses) {
  FakeFleet fleet(Options());
  fleet.Run();
  TickTimes(&fleet, 5);
  fleet.Exchange();
  fleet.TakeSent(kSchedulerPeer);
  fleet.view.version = ViewVersion(2);
  fleet.view.proposal = {1, true};
  fleet.FromScheduler(ViewUpdate{fleet.view});
  auto beats = BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(beats.size(), 1u);
  EXPECT_EQ(beats[0].proposal, 1u);
  EXPECT_EQ(beats[0].clock, Clock(105));
  TickTimes(&fleet, int(kProposalSlack));
  fleet.Exchange();
  EXPECT_EQ(fleet.shards[0].ticked, Clock(105 + kProposalSlack));  // at the cap
  TickTimes(&fleet, 3);
  fleet.Exchange();
  EXPECT_EQ(fleet.shards[0].ticked, Clock(105 + kProposalSlack));  // and one past it
  EXPECT_EQ(fleet.client.clock(), Clock(105 + kProposalSlack + 3));
  // Another view with the same proposal changes nothing, not even what is reported.
  fleet.view.version = ViewVersion(3);
  fleet.FromScheduler(ViewUpdate{fleet.view});
  beats = BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(beats.size(), 1u);
  EXPECT_EQ(beats[0].clock, Clock(105));
  fleet.view.version = ViewVersion(4);
  fleet.view.proposal.open = false;
  fleet.FromScheduler(ViewUpdate{fleet.view});
  fleet.Exchange();
  EXPECT_EQ(fleet.shards[0].ticked, Clock(105 + kProposalSlack + 3));
  EXPECT_EQ(fleet.EventsOf<TickDone>().size(), 5 + kProposalSlack + 3);
}

TEST(ClientTick, AProposalHoldsPushesBehindItsCapUntilItCloses) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.view.version = ViewVersion(2);
  fleet.view.proposal = {1, true};
  fleet.FromScheduler(ViewUpdate{fleet.view});
  TickTimes(&fleet, int(kProposalSlack));
  fleet.Exchange();
  const Plan plan = fleet.MakePlan(kUsers, Keys(30));
  fleet.Push(plan, fleet.Gradients(plan), fleet.client.clock());  // of the last clock
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
  TickTimes(&fleet, 1);
  fleet.Push(plan, fleet.Gradients(plan), fleet.client.clock());  // one past it
  fleet.Exchange();
  EXPECT_TRUE(fleet.EventsOf<PushDone>().empty());
  fleet.view.version = ViewVersion(3);
  fleet.view.proposal.open = false;
  fleet.FromScheduler(ViewUpdate{fleet.view});
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
}

// Rule K11. A clock that has a push is finished, and the next clock does not begin.
TEST(ClientTick, ADrainFinishesTheClockThatHasAPushAndNoOther) {
  FakeFleet fleet(Options());
  fleet.Run();
  TickTimes(&fleet, 2);
  const Plan plan = fleet.MakePlan(kUsers, Keys(30));
  const auto push = [&] { fleet.Push(plan, fleet.Gradients(plan), fleet.client.clock()); };
  push();  // of clock 102, which is under way
  fleet.Exchange();
  fleet.TakeSent(kSchedulerPeer);
  fleet.EventsOf<PushDone>();
  fleet.view.version = ViewVersion(2);
  fleet.view.proposal = {1, true, true};
  fleet.FromScheduler(ViewUpdate{fleet.view});
  push();  // another of that clock
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
  for (const Heartbeat& beat : BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer))) EXPECT_EQ(beat.drained, 0u);
  TickTimes(&fleet, 1);
  push();  // of clock 103
  TickTimes(&fleet, 1);
  fleet.Exchange();
  EXPECT_TRUE(fleet.EventsOf<PushDone>().empty());
  EXPECT_EQ(fleet.shards[0].ticked, Clock(103));
  const auto beats = BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_FALSE(beats.empty());
  EXPECT_EQ(beats.back().drained, 1u);
  EXPECT_EQ(beats.back().acked_clock, Clock(103));
  fleet.view.version = ViewVersion(3);
  fleet.view.proposal = {1, false, false};
  fleet.FromScheduler(ViewUpdate{fleet.view});
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PushDone>().size(), 1u);
  EXPECT_EQ(fleet.shards[0].ticked, Clock(104));
}

TEST(ClientTick, BetweenTwoClocksAWorkerIsDrainedAtOnce) {
  FakeFleet fleet(Options());
  fleet.Run();
  TickTimes(&fleet, 2);
  fleet.Exchange();
  fleet.TakeSent(kSchedulerPeer);
  fleet.view.version = ViewVersion(2);
  fleet.view.proposal = {1, true, true};
  fleet.FromScheduler(ViewUpdate{fleet.view});
  const auto beats = BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_FALSE(beats.empty());
  EXPECT_EQ(beats.back().drained, 1u);
  const Plan plan = fleet.MakePlan(kUsers, Keys(30));
  fleet.Push(plan, fleet.Gradients(plan), fleet.client.clock());
  TickTimes(&fleet, 1);
  fleet.Exchange();
  EXPECT_TRUE(fleet.EventsOf<PushDone>().empty());
  EXPECT_EQ(fleet.shards[0].ticked, Clock(102));
}

TEST(ClientTick, AProposalInTheWelcomeCountsToo) {
  FakeFleet fleet(Options());
  fleet.view.proposal = {9, true};
  fleet.Run();
  const auto beats = BodiesOf<Heartbeat>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(beats.size(), 1u);
  EXPECT_EQ(beats[0].proposal, 9u);
  EXPECT_EQ(beats[0].clock, Clock(100));
}

TEST(ClientTick, ACheckpointGetsThePositionOfItsClockDespiteLaterTicks) {
  FakeFleet fleet(Options());
  fleet.Run();
  fleet.view.version = ViewVersion(2);
  fleet.view.proposal = {1, true};
  fleet.FromScheduler(ViewUpdate{fleet.view});
  TickTimes(&fleet, 30);
  fleet.Exchange();
  fleet.TakeSent(kSchedulerPeer);
  const Clock at(100 + kProposalSlack + 1);
  fleet.view.version = ViewVersion(3);
  fleet.view.proposal.open = false;
  fleet.view.checkpoint = {CheckpointId(4), true, at, "dir"};
  fleet.FromScheduler(ViewUpdate{fleet.view});
  EXPECT_TRUE(BodiesOf<CheckpointPart>(fleet.TakeSent(kSchedulerPeer)).empty());
  fleet.Exchange();
  EXPECT_EQ(fleet.shards[0].ticked, Clock(130));
  fleet.Wait(1'000'000);
  auto parts = BodiesOf<CheckpointPart>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(parts.size(), 2u);  // repeated until the order is withdrawn
  EXPECT_EQ(parts[0].id, CheckpointId(4));
  EXPECT_EQ(parts[0].clock, at);
  EXPECT_EQ(parts[0].position, (DataPosition{LeaseId(1), at.value}));
  fleet.view.version = ViewVersion(4);
  fleet.view.checkpoint = {};
  fleet.FromScheduler(ViewUpdate{fleet.view});
  fleet.Wait(30'000'000);
  EXPECT_TRUE(BodiesOf<CheckpointPart>(fleet.TakeSent(kSchedulerPeer)).empty());
}

TEST(ClientTick, ACheckpointOfAClockAlreadyReachedIsAnsweredAtOnce) {
  FakeFleet fleet(Options());
  fleet.Run();
  TickTimes(&fleet, 2);
  fleet.Exchange();
  fleet.TakeSent(kSchedulerPeer);
  fleet.view.version = ViewVersion(2);
  fleet.view.checkpoint = {CheckpointId(4), true, Clock(102), ""};
  fleet.FromScheduler(ViewUpdate{fleet.view});
  const auto parts = BodiesOf<CheckpointPart>(fleet.TakeSent(kSchedulerPeer));
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].clock, Clock(102));
  EXPECT_EQ(parts[0].position, (DataPosition{LeaseId(1), 102}));
  // An order without a clock needs no reports of workers.
  fleet.view.version = ViewVersion(3);
  fleet.view.checkpoint = {CheckpointId(5), false, Clock(0), ""};
  fleet.FromScheduler(ViewUpdate{fleet.view});
  EXPECT_TRUE(BodiesOf<CheckpointPart>(fleet.TakeSent(kSchedulerPeer)).empty());
}

TEST(ClientTick, PausesWhileTheSchedulerIsSilent) {
  FleetOptions options = Options();
  options.lease_seconds = 5;
  options.heartbeat_seconds = 2;
  FakeFleet fleet(options);
  fleet.Run();
  fleet.Wait(4'900'000);
  TickTimes(&fleet, 1);
  EXPECT_EQ(TicksTo(&fleet, 0).size(), 1u);
  fleet.Wait(30'000'000);
  EXPECT_LE(TicksTo(&fleet, 0).size(), 1u);
  TickTimes(&fleet, 1);
  fleet.Wait(10'000'000);
  EXPECT_TRUE(TicksTo(&fleet, 0).empty());
  // Pulls and pushes continue during the pause: shards decide about them.
  const Plan plan = fleet.MakePlan(kUsers, Keys(3));
  fleet.Pull(plan, Clock(100));
  fleet.Exchange();
  EXPECT_EQ(fleet.EventsOf<PullDone>().size(), 1u);
  fleet.FromScheduler(HeartbeatAck{ViewVersion(1)});
  fleet.Exchange();
  EXPECT_EQ(fleet.shards[0].ticked, Clock(102));
}

}  // namespace
}  // namespace tarn::worker
