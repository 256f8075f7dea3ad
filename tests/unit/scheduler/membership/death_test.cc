// Shows what happens when nodes die (rules N4, M3-M5, D4, D6): one verdict from the highest tick that any shard holds,
// and every row of every epoch trained exactly once whenever and however a worker dies.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

const WorkerEntry* EntryOf(const View& view, Incarnation incarnation) {
  for (const WorkerEntry& entry : view.workers)
    if (entry.incarnation == incarnation) return &entry;
  return nullptr;
}

void ExpectExactlyOnce(const FakeFleet& fleet, std::uint32_t epochs) {
  ASSERT_EQ(fleet.trained.size(), epochs * fleet.rows[0]);
  for (const auto& [row, times] : fleet.trained) ASSERT_EQ(times, 1) << "epoch " << row.first << " row " << row.second;
}

TEST(Death, TheVerdictIsTheHighestTickOfAnyShard) {
  Job job = SmallJob(3, 2);
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  FakeFleet fleet(job);
  fleet.rows[0] = 300;
  fleet.AddAll();
  FakeWorker& worker = *fleet.workers[0];
  for (int i = 0; i < 4; ++i) fleet.Work(worker);  // requests a lease, trains three batches
  ASSERT_EQ(worker.clock, Clock(3));
  fleet.Work(worker);  // the second lease, or the report of the first
  const Clock clock = worker.clock;
  fleet.KillInTick(worker, 1);
  const Clock highest = fleet.HighestTick(worker);
  EXPECT_GE(highest, clock);
  fleet.Pass(8);
  const WorkerEntry* entry = EntryOf(fleet.scheduler.view(), worker.incarnation);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->state, WorkerState::kEnded);
  EXPECT_EQ(entry->end, highest);
  EXPECT_EQ(fleet.scheduler.progress().workers_died, 1u);
}

TEST(Death, NoVerdictBeforeEveryShardHasReported) {
  FakeFleet fleet(SmallJob(2, 2));
  fleet.rows[0] = 300;
  fleet.AddAll();
  fleet.Kill(*fleet.workers[0]);
  fleet.Pass(5);
  fleet.shards[1]->silent = true;
  fleet.Pass(1.5);
  EXPECT_EQ(EntryOf(fleet.scheduler.view(), fleet.workers[0]->incarnation)->state, WorkerState::kFencing);
  fleet.shards[1]->silent = false;
  fleet.Pass(2);
  EXPECT_EQ(EntryOf(fleet.scheduler.view(), fleet.workers[0]->incarnation)->state, WorkerState::kEnded);
}

// Rule N4: a loading shard sends heartbeats over another connection; one that is silent while it loads is dead.
TEST(Death, ALoadingShardIsAliveAndASilentOneIsNot) {
  FakeFleet fleet(SmallJob(2, 1));
  fleet.AddShard(0);
  FakeShard& loads = fleet.AddShard(1);
  loads.silent = true;
  fleet.AddWorker(0);
  ASSERT_EQ(fleet.scheduler.progress().phase, "train");
  const double lease = fleet.job.fleet.lease_seconds;
  const Incarnation incarnation(2);  // of the second shard
  std::vector<Peer> answered;
  fleet.on_send = [&](const Outgoing& sent) { answered.push_back(sent.to); };
  const Peer beacon(kFirstAcceptedPeer + 900);
  for (int i = 0; i < 20; ++i) {
    fleet.Pass(lease / 4);
    fleet.SendFrom(beacon,
                   {.job = Fingerprint(fleet.job), .sender = {Role::kShard, 1, incarnation}, .body = Heartbeat{}});
  }
  EXPECT_FALSE(fleet.scheduler.stopping()) << fleet.scheduler.stop_reason().reason;
  EXPECT_EQ(std::ranges::count(answered, beacon), 0) << "its Welcome would go there";
  fleet.Pass(lease + 1);
  EXPECT_TRUE(fleet.scheduler.stopping());
  EXPECT_TRUE(fleet.scheduler.stop_reason().reason.starts_with("shard 1 ")) << fleet.scheduler.stop_reason().reason;
}

TEST(Death, RepeatedBatchesOfImmediateTablesAreCounted) {
  Job job = SmallJob(1, 2);
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  FakeFleet fleet(job);
  fleet.rows[0] = 300;
  fleet.AddAll();
  FakeWorker& worker = *fleet.workers[0];
  fleet.Kill(worker);
  fleet.shards[0]->silent = true;  // the test sends its messages
  fleet.Pass(5);
  fleet.shards[0]->silent = false;
  Heartbeat beat;
  while (fleet.scheduler.progress().workers_live > 1) {
    fleet.shards[0]->silent = true;
    fleet.Send(*fleet.shards[0], beat);
    fleet.Pass(0.5);
  }
  FencedTick tick;
  tick.incarnation = worker.incarnation;
  tick.tick = Clock(3);
  tick.pushed = Clock(5);
  beat.view = fleet.scheduler.view().version;
  beat.fenced.push_back(tick);
  fleet.Send(*fleet.shards[0], beat);
  EXPECT_EQ(fleet.scheduler.progress().batches_repeated, 2u);
}

TEST(Death, ASilentShardEndsTheJob) {
  FakeFleet fleet(SmallJob(2, 1));
  fleet.AddAll();
  fleet.shards[1]->silent = true;
  fleet.Pass(7);
  EXPECT_TRUE(fleet.scheduler.stopping());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kUnavailable);
  EXPECT_EQ(fleet.scheduler.progress().phase, "failed");
  EXPECT_NE(fleet.scheduler.stop_reason().reason.find("shard 1"), std::string::npos);
  EXPECT_TRUE(fleet.workers[0]->shutdown);
}

TEST(Death, TheErrorOfALostShardSaysWhatToDo) {
  const std::pair<Durability, const char*> advice[] = {
      {Durability::kNone, "its rows are lost, and the job has no checkpoints (storage.durability = \"none\")"},
      {Durability::kCheckpoint,
       "changes since the last checkpoint are lost. To continue from that checkpoint: tools/launch --resume"},
      {Durability::kLog, "continues from its newest checkpoint. To continue: tools/launch --resume"}};
  for (const auto& [durability, text] : advice) {
    Job job = SmallJob(2, 1);
    job.storage.durability = durability;
    FakeFleet fleet(job);
    fleet.AddAll();
    std::string refusal;
    fleet.on_send = [&](const Outgoing& outgoing) {
      if (const auto* shutdown = std::get_if<Shutdown>(&outgoing.message.body); shutdown && refusal.empty())
        refusal = shutdown->reason;
    };
    FakeShard& again = fleet.AddShard(1);
    EXPECT_TRUE(again.shutdown);
    EXPECT_NE(refusal.find(text), std::string::npos) << refusal;
    for (const auto& shard : fleet.shards)
      if (shard->shard == ShardId(1)) shard->silent = true;
    fleet.Pass(7);
    EXPECT_NE(fleet.scheduler.stop_reason().reason.find(text), std::string::npos)
        << fleet.scheduler.stop_reason().reason;
  }
}

TEST(Death, AFailingShardEndsTheJob) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.AddAll();
  fleet.Send(*fleet.shards[0], Shutdown{ErrorCode::kIo, "disk full"});
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kIo);
  EXPECT_EQ(fleet.scheduler.stop_reason().reason, "shard 0: disk full");
}

TEST(Death, TheReasonNamesItsShardOnce) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.AddAll();
  fleet.Send(*fleet.shards[0], Shutdown{ErrorCode::kIo, "shard 0: checkpoint: disk full"});
  EXPECT_EQ(fleet.scheduler.stop_reason().reason, "shard 0: checkpoint: disk full");
}

// Only Shutdown{kOk} confirms a stop (rule S2).
TEST(Death, ARepeatedReasonIsNoConfirmation) {
  FakeFleet fleet(SmallJob(1, 1));
  fleet.AddAll();
  fleet.shards[0]->silent = true;  // the scheduler's answer is lost
  fleet.Send(*fleet.shards[0], Shutdown{ErrorCode::kIo, "disk full"});
  EXPECT_TRUE(fleet.scheduler.stopping());
  fleet.Send(*fleet.shards[0], Shutdown{ErrorCode::kIo, "disk full"});
  EXPECT_FALSE(fleet.scheduler.stopped());
  fleet.Send(*fleet.shards[0], Shutdown{});
  EXPECT_TRUE(fleet.scheduler.stopped());
}

TEST(Death, AfterAPauseTheSchedulerDropsNoNode) {
  FakeFleet fleet(SmallJob(2, 2));
  fleet.AddAll();
  fleet.now += 60'000'000;  // it was stopped for a minute
  fleet.Pass(3);
  EXPECT_FALSE(fleet.scheduler.stopping());
  EXPECT_EQ(fleet.scheduler.progress().workers_died, 0u);
}

TEST(Death, EndedEntriesLeaveTheViewWhenAllClocksHavePassed) {
  FakeFleet fleet(SmallJob(1, 2));
  fleet.rows[0] = 3000;
  fleet.AddAll();
  FakeWorker& dead = *fleet.workers[0];
  for (int i = 0; i < 10; ++i) fleet.Work(dead);
  fleet.Kill(dead);
  fleet.Pass(8);
  fleet.AddWorker(0);
  fleet.Pass(3);
  EXPECT_NE(EntryOf(fleet.scheduler.view(), dead.incarnation), nullptr);  // the other is not past its end
  for (int i = 0; i < 30; ++i) {
    fleet.Work(*fleet.workers[1]);
    fleet.Work(fleet.Newest(0));
  }
  fleet.Pass(1);
  CreateTable create;
  create.spec.name = "t";
  fleet.Send(*fleet.workers[1], create);
  EXPECT_EQ(EntryOf(fleet.scheduler.view(), dead.incarnation), nullptr);
}

struct Case {
  const char* name;
  ConsistencyMode mode;
  ApplyMode apply;
  std::uint64_t valid_rows;
};

class DeathAnywhere : public testing::TestWithParam<Case> {};

// Runs a job in which a worker dies after `steps` of work, when its tick has reached `reached` shards; `comes_back`: it
// is replaced.
void RunWithDeath(const Case& parameters, int steps, std::size_t reached, bool comes_back) {
  Job job = SmallJob(2, 3);
  job.consistency = {.mode = parameters.mode,
                     .staleness = parameters.mode == ConsistencyMode::kSsp ? 2u : 0u,
                     .apply = parameters.apply};
  job.train.epochs = 2;
  FakeFleet fleet(job);
  fleet.rows[0] = 205;
  fleet.rows[1] = parameters.valid_rows;
  fleet.AddAll();
  bool killed = false;
  int worked = 0;
  for (int i = 0; i < 2000 && !fleet.scheduler.stopped() && !killed; ++i) {
    bool any = false;
    for (std::size_t w = 0; w < fleet.workers.size(); ++w) {
      if (w == 1 && worked >= steps) {
        fleet.KillInTick(*fleet.workers[1], reached);
        killed = true;
        break;
      }
      const bool did = fleet.Work(*fleet.workers[w]);
      worked += did && w == 1 ? 1 : 0;
      any |= did;
    }
    if (!any) fleet.Pass(0.5);
  }
  if (killed && comes_back) fleet.AddWorker(1);
  ASSERT_TRUE(fleet.RunToEnd()) << steps << " " << reached << " " << comes_back;
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
  EXPECT_EQ(fleet.scheduler.progress().samples, 2 * fleet.rows[0]);
  ExpectExactlyOnce(fleet, 2);
}

TEST_P(DeathAnywhere, EveryRowIsTrainedOnceAnEpoch) {
  for (int steps = 0; steps < 40; ++steps)
    for (std::size_t reached : {0u, 1u, 2u})
      for (bool comes_back : {false, true}) {
        RunWithDeath(GetParam(), steps, reached, comes_back);
        if (HasFatalFailure()) return;
      }
}

INSTANTIATE_TEST_SUITE_P(Modes, DeathAnywhere,
                         testing::Values(Case{"bsp", ConsistencyMode::kBsp, ApplyMode::kAggregated, 0},
                                         Case{"bsp_valid", ConsistencyMode::kBsp, ApplyMode::kAggregated, 57},
                                         Case{"ssp", ConsistencyMode::kSsp, ApplyMode::kAggregated, 57},
                                         Case{"asp", ConsistencyMode::kAsp, ApplyMode::kImmediate, 0}),
                         [](const auto& tested) { return tested.param.name; });

TEST(Death, TheOnlyWorkerDiesRepeatedly) {
  FakeFleet fleet(SmallJob(2, 1));
  fleet.rows[0] = 205;
  fleet.rows[1] = 57;
  fleet.AddAll();
  for (int i = 0; i < 12 && !fleet.scheduler.stopped(); ++i) {
    for (int step = 0; step < 3 + i; ++step) fleet.Work(fleet.Newest(0));
    fleet.KillInTick(fleet.Newest(0), static_cast<std::size_t>(i) % 3);
    fleet.AddWorker(0);
    fleet.Pass(3);
  }
  ASSERT_TRUE(fleet.RunToEnd());
  ExpectExactlyOnce(fleet, 1);
}

}  // namespace
}  // namespace tarn::scheduler
