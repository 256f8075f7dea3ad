// Shows checkpoints from the order to the manifest (rules K1-K6) and that a run resumed from one goes on exactly where
// it was cut, whatever happened to workers meanwhile.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "scheduler/checkpoints/checkpoints.h"
#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

const Manifest* WaitForManifest(FakeFleet& fleet, std::size_t count) {
  for (int i = 0; i < 500 && fleet.store.manifests.size() < count; ++i) fleet.Step();
  return fleet.store.manifests.size() < count ? nullptr : &fleet.store.manifests.rbegin()->second;
}

std::uint64_t Sum(const std::vector<std::uint64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

TEST(Checkpoint, AtAClockThatNobodyHasPassed) {
  FakeFleet fleet(Durable(2, 2));
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 12; ++i) fleet.Step();
  const Clock before = fleet.workers[0]->clock;
  fleet.RequestCheckpoint();
  const Manifest* manifest = WaitForManifest(fleet, 1);
  ASSERT_NE(manifest, nullptr);
  EXPECT_GT(manifest->resume_clock, before);
  // By rank and in step, both have done exactly the clocks below the cut, ten rows each.
  EXPECT_EQ(Sum(manifest->data.trained), manifest->resume_clock.value * 2 * 10);
  EXPECT_EQ(manifest->samples, Sum(manifest->data.trained));
  ASSERT_EQ(manifest->generations.size(), 1u);
  EXPECT_EQ(manifest->generations[0].id, manifest->id);
  EXPECT_EQ(manifest->generations[0].clock, manifest->resume_clock);
  EXPECT_EQ(manifest->generations[0].files.size(), 2u);
  EXPECT_EQ(manifest->generations[0].state_hash, 201u);
  EXPECT_EQ(manifest->generations[0].tables, (std::vector<CheckpointTable>{{TableId(1), 6, 0, 4, 20}}));
  EXPECT_FALSE(manifest->state_hash);  // training goes on: not asked for
  EXPECT_EQ(manifest->batches_behind, 0u);
  for (const auto& shard : fleet.shards) EXPECT_GE(shard->min_clock, manifest->resume_clock);
  fleet.Pass(2);
  EXPECT_EQ(fleet.scheduler.view().checkpoint.id, CheckpointId(0));
  EXPECT_FALSE(fleet.scheduler.view().proposal.open);
}

TEST(Checkpoint, NeverBeyondTheCeiling) {
  FakeFleet fleet(Durable(1, 2));
  fleet.rows[0] = 120;  // six clocks each
  fleet.AddAll();
  for (int i = 0; i < 5; ++i) fleet.Step();
  fleet.RequestCheckpoint();
  const Manifest* manifest = WaitForManifest(fleet, 1);
  ASSERT_NE(manifest, nullptr);
  EXPECT_EQ(manifest->resume_clock, Clock(6));
  EXPECT_EQ(manifest->samples, 120u);
}

Job ThreeEpochs() {
  Job job = Durable(2, 2);
  job.train.epochs = 3;
  return job;
}

// Trains until the second epoch is scored. False: it never is.
bool ScoresTheSecond(FakeFleet* fleet) {
  fleet->rows[0] = 120;
  fleet->rows[1] = 20;
  fleet->AddAll();
  for (int i = 0; i < 1000; ++i) {
    const Progress progress = fleet->scheduler.progress();
    if (progress.epoch == 1 && progress.phase == "validate") return true;
    fleet->Step();
  }
  return false;
}

// Between two epochs no proposal holds the workers back.
TEST(Checkpoint, NoEpochBeginsBeforeEveryShardKnowsOfTheOrder) {
  FakeFleet fleet(ThreeEpochs());
  ASSERT_TRUE(ScoresTheSecond(&fleet));
  fleet.shards[1]->deaf = true;
  fleet.RequestCheckpoint();
  const CheckpointOrder order = fleet.scheduler.view().checkpoint;
  ASSERT_TRUE(order.at_clock);
  for (int i = 0; i < 60; ++i) fleet.Step();
  for (const auto& worker : fleet.workers) EXPECT_EQ(worker->clock, order.clock);
  fleet.shards[1]->deaf = false;
  EXPECT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.progress().epochs.size(), 3u);
}

// Ordered while the second epoch is scored, it becomes whole when the third and last one is trained, and lacks it.
TEST(Checkpoint, WhatIsTrainedWhileACheckpointIsWrittenIsNotInIt) {
  FakeFleet fleet(ThreeEpochs());
  ASSERT_TRUE(ScoresTheSecond(&fleet));
  fleet.shards[0]->writes_parts = false;
  fleet.RequestCheckpoint();
  const CheckpointId requested = fleet.scheduler.view().checkpoint.id;
  for (int i = 0; i < 1000 && fleet.scheduler.progress().samples < 3 * 120; ++i) fleet.Step();
  ASSERT_EQ(fleet.scheduler.progress().samples, 3 * 120u);
  ASSERT_EQ(fleet.scheduler.view().checkpoint.id, requested);
  fleet.shards[0]->writes_parts = true;
  EXPECT_TRUE(fleet.RunToEnd());
  std::uint64_t samples = 0;
  for (const auto& [directory, manifest] : fleet.store.manifests) samples = std::max(samples, manifest.samples);
  EXPECT_EQ(samples, 3 * 120u);
}

TEST(Checkpoint, ImmediateTablesAreCutWhereTheyStand) {
  Job job = Durable(2, 2);
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  FakeFleet fleet(job);
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 12; ++i) fleet.Step();
  fleet.Pass(1);  // heartbeats tell where the workers are
  const std::uint64_t noted = fleet.scheduler.progress().samples;
  fleet.shards[0]->writes_parts = false;
  fleet.RequestCheckpoint();
  for (int i = 0; i < 6; ++i) fleet.Step();
  fleet.Pass(1);
  EXPECT_TRUE(fleet.store.manifests.empty());
  fleet.shards[0]->writes_parts = true;
  const std::uint64_t now = fleet.scheduler.progress().samples;
  EXPECT_GT(now, noted);
  fleet.Pass(1);
  ASSERT_EQ(fleet.store.manifests.size(), 1u);
  const Manifest& manifest = fleet.store.manifests.begin()->second;
  EXPECT_EQ(manifest.samples, noted);
  EXPECT_EQ(manifest.batches_behind, (now - noted) / 10);
}

TEST(Checkpoint, BspIsCutAtAClockHoweverPushesAreApplied) {
  Job job = Durable(2, 2);
  job.consistency.apply = ApplyMode::kImmediate;
  FakeFleet fleet(job);
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 12; ++i) fleet.Step();
  fleet.RequestCheckpoint();
  const Manifest* manifest = WaitForManifest(fleet, 1);
  ASSERT_NE(manifest, nullptr);
  EXPECT_EQ(Sum(manifest->data.trained), manifest->resume_clock.value * 2 * 10);
  EXPECT_EQ(manifest->batches_behind, 0u);
}

TEST(Checkpoint, OneTableThatKeepsStepIsEnoughForAClock) {
  Job job = Durable(2, 2);
  job.consistency = {.mode = ConsistencyMode::kSsp, .staleness = 2, .apply = ApplyMode::kImmediate};
  for (const ConsistencySpec& own : {ConsistencySpec{ConsistencyMode::kBsp, 0, ApplyMode::kImmediate},
                                     ConsistencySpec{ConsistencyMode::kSsp, 1, ApplyMode::kAggregated}}) {
    job.tables["dense"].has_consistency = true;
    job.tables["dense"].consistency = own;
    FakeFleet fleet(job);
    fleet.rows[0] = 1000;
    fleet.AddAll();
    for (int i = 0; i < 12; ++i) fleet.Step();
    fleet.RequestCheckpoint();
    const Manifest* manifest = WaitForManifest(fleet, 1);
    ASSERT_NE(manifest, nullptr);
    EXPECT_EQ(manifest->batches_behind, 0u);
    for (const auto& shard : fleet.shards) EXPECT_GE(shard->min_clock, manifest->resume_clock);
  }
}

TEST(Checkpoint, PeriodicByClocksAndBySeconds) {
  Job job = Durable(1, 2);
  job.storage.checkpoint_clocks = 20;
  job.storage.checkpoints_kept = 2;
  job.storage.checkpoint_final = false;
  FakeFleet fleet(job);
  fleet.rows[0] = 2000;
  fleet.AddAll();
  for (int i = 0; i < 300 && !fleet.scheduler.stopped(); ++i) {
    fleet.Step();
    fleet.Pass(0.5);
  }
  EXPECT_GE(fleet.store.manifests.size() + fleet.store.removed.size(), 4u);
  EXPECT_LE(fleet.store.manifests.size(), 3u);  // two and the best

  Job timed = Durable(1, 1);
  timed.storage.checkpoint_seconds = 5;
  FakeFleet slow(timed);
  slow.rows[0] = 100000;
  slow.AddAll();
  for (int i = 0; i < 40; ++i) {
    slow.Step();
    slow.Pass(0.5);
  }
  EXPECT_GE(slow.store.manifests.size(), 2u);
}

// A program that has no data but its own: what it pushes is kept too, and a log does not grow without end.
TEST(Checkpoint, PeriodicWithoutLeases) {
  Job job = Durable(1, 1);
  job.consistency = {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate};
  job.storage.checkpoint_seconds = 5;
  FakeFleet fleet(job);
  fleet.AddAll();
  TableSpec spec;
  spec.name = "t";
  fleet.Pass(20);
  EXPECT_TRUE(fleet.store.manifests.empty()) << "there is nothing to keep";
  fleet.Send(*fleet.workers[0], CreateTable{.spec = spec, .code = ErrorCode::kOk, .message = {}});
  for (int i = 0; i < 40; ++i) fleet.Pass(0.5);
  EXPECT_GE(fleet.store.manifests.size() + fleet.store.removed.size(), 2u);
}

// Nor does a report of before the checkpoint that shortened it order another.
TEST(Checkpoint, ALogThatIsTooLongIsShortenedOnce) {
  Job job = Durable(1, 1);
  job.storage.durability = Durability::kLog;
  job.storage.checkpoint_seconds = 0;
  job.consistency = {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate};
  FakeFleet fleet(job);
  fleet.rows[0] = 100'000;
  fleet.AddAll();
  for (int i = 0; i < 4; ++i) fleet.Step();
  FakeShard& shard = *fleet.shards[0];
  const auto says_long = [&](ViewVersion view) {
    tarn::Heartbeat beat;
    beat.view = view;
    beat.clock = shard.min_clock;
    beat.log_bytes = limits::kLogBytesMax;
    fleet.Send(shard, beat);
    shard.silent = true;  // until the scheduler has thought about it
    fleet.Pass(1);
    shard.silent = false;
    for (int i = 0; i < 10; ++i) fleet.Pass(0.5);
  };
  const ViewVersion before = shard.view.version;
  says_long(before);
  EXPECT_EQ(fleet.store.manifests.size(), 1u);
  says_long(before);
  EXPECT_EQ(fleet.store.manifests.size(), 1u);
  says_long(shard.view.version);
  EXPECT_EQ(fleet.store.manifests.size() + fleet.store.removed.size(), 2u);
}

TEST(Checkpoint, BestIsKeptAndFinalIsWritten) {
  Job job = Durable(1, 2);
  job.train.epochs = 6;
  job.storage.checkpoints_kept = 1;
  FakeFleet fleet(job);
  fleet.rows[0] = 60;
  fleet.rows[1] = 20;
  fleet.AddAll();
  ASSERT_TRUE(fleet.RunToEnd());
  const Progress progress = fleet.scheduler.progress();
  EXPECT_EQ(fleet.store.manifests.size(), 2u);
  EXPECT_TRUE(fleet.store.manifests.contains(progress.best_checkpoint));
  EXPECT_TRUE(fleet.store.manifests.contains(progress.last_checkpoint));
  EXPECT_NE(progress.best_checkpoint, progress.last_checkpoint);
  EXPECT_EQ(fleet.store.manifests[progress.best_checkpoint].epochs.size(), 1u);
  EXPECT_EQ(fleet.store.manifests[progress.last_checkpoint].epochs.size(), 6u);
}

TEST(Checkpoint, TheBestOfTheLastEpochIsTheFinalOne) {
  FakeFleet fleet(Durable(1, 2));
  fleet.rows[0] = 60;
  fleet.AddAll();
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.store.manifests.size(), 1u);
  EXPECT_TRUE(fleet.scheduler.progress().has_state_hash);
}

TEST(Stop, EndsAtOnceWhileWorkersStillReadTheirData) {
  FakeFleet fleet(Durable(2, 2));
  fleet.AddAll();
  fleet.Pass(3);
  ASSERT_EQ(fleet.scheduler.progress().phase, "train");
  fleet.RequestStop();
  EXPECT_TRUE(fleet.scheduler.stopping());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
  EXPECT_EQ(fleet.scheduler.progress().phase, "stopped");
  fleet.Pass(1);
  EXPECT_TRUE(fleet.scheduler.stopped());
  EXPECT_TRUE(fleet.store.manifests.empty());
}

TEST(Stop, WhatClientsWithoutLeasesHaveDoneIsKept) {
  FakeFleet fleet(Durable(1, 1));
  fleet.AddAll();
  fleet.workers[0]->clock = Clock(1);  // ticked, though nothing was granted
  fleet.Pass(1);
  fleet.RequestStop();
  EXPECT_FALSE(fleet.scheduler.stopping());
}

TEST(Deserted, AFleetWithoutWorkersEndsAfterTwentyLeases) {
  for (Durability durability : {Durability::kCheckpoint, Durability::kNone}) {
    Job job = Durable(2, 2);
    job.storage.durability = durability;
    FakeFleet fleet(job);
    fleet.rows[0] = 10000;
    fleet.AddAll();
    for (int i = 0; i < 12; ++i) fleet.Step();
    for (auto& worker : fleet.workers) fleet.Kill(*worker);
    fleet.Pass(6);  // both are dead
    ASSERT_EQ(fleet.scheduler.progress().workers_live, 0u);
    fleet.Pass(20 * 5 - 2);
    EXPECT_FALSE(fleet.scheduler.stopping());
    fleet.Pass(5);
    EXPECT_TRUE(fleet.scheduler.stopping());
    EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kUnavailable);
    EXPECT_EQ(fleet.scheduler.progress().phase, "failed");
    EXPECT_EQ(fleet.store.manifests.size(), durability == Durability::kCheckpoint ? 1u : 0u);
  }
}

TEST(Deserted, OneThatComesBackIsInTime) {
  FakeFleet fleet(Durable(1, 1));
  fleet.rows[0] = 100;
  fleet.AddAll();
  for (int i = 0; i < 3; ++i) fleet.Step();
  fleet.Kill(*fleet.workers[0]);
  fleet.Pass(90);
  fleet.AddWorker(0);
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
}

TEST(Checkpoint, StopCutsOneAndASecondDoesNotWait) {
  FakeFleet fleet(Durable(1, 2));
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 5; ++i) fleet.Step();
  fleet.RequestStop();
  for (int i = 0; i < 100 && !fleet.scheduler.stopped(); ++i) fleet.Step();
  EXPECT_TRUE(fleet.scheduler.stopped());
  EXPECT_EQ(fleet.scheduler.progress().phase, "stopped");
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
  EXPECT_EQ(fleet.store.manifests.size(), 1u);

  FakeFleet hasty(Durable(1, 2));
  hasty.rows[0] = 1000;
  hasty.AddAll();
  for (int i = 0; i < 5; ++i) hasty.Step();
  hasty.shards[0]->writes_parts = false;
  hasty.RequestStop();
  EXPECT_FALSE(hasty.scheduler.stopping());
  hasty.RequestStop();
  EXPECT_TRUE(hasty.scheduler.stopping());
  EXPECT_TRUE(hasty.store.manifests.empty());
}

// Runs a job, cuts a checkpoint after `steps`, with a death at `kill_step` after the request (none if negative), and
// resumes it in another fleet: every row of the epochs is covered exactly once by both together.
void CutAndResume(ConsistencyMode mode, ApplyMode apply, int steps, int kill_step, std::size_t reached) {
  Job job = Durable(2, 3);
  job.consistency.mode = mode;
  job.consistency.apply = apply;
  job.consistency.staleness = mode == ConsistencyMode::kSsp ? 3 : 0;
  job.train.epochs = 2;
  FakeFleet fleet(job);
  fleet.rows[0] = 605;
  fleet.rows[1] = 21;
  fleet.AddAll();
  for (int i = 0; i < steps; ++i) fleet.Step();
  if (fleet.scheduler.progress().phase != "train") return;
  const std::size_t before = fleet.store.manifests.size();
  fleet.RequestCheckpoint();
  for (int i = 0; i < 400 && fleet.store.manifests.size() == before && !fleet.scheduler.stopped(); ++i) {
    if (i == kill_step) fleet.KillInTick(*fleet.workers[1], reached);
    if (i == kill_step + 30) fleet.AddWorker(1);
    fleet.Step();
  }
  ASSERT_GT(fleet.store.manifests.size(), before);
  const Manifest manifest = fleet.store.manifests.rbegin()->second;

  Job other = job;
  other.fleet.workers = 2;
  other.fleet.shards = 3;
  FakeFleet resumed(other, &manifest);
  resumed.rows[0] = 605;
  resumed.rows[1] = 21;
  resumed.AddAll();
  EXPECT_EQ(resumed.shards[0]->resume_directory, "old");
  EXPECT_EQ(resumed.workers[0]->start, manifest.resume_clock);
  EXPECT_GE(resumed.workers[0]->incarnation, manifest.next_incarnation);
  ASSERT_TRUE(resumed.RunToEnd()) << steps << " " << kill_step;
  EXPECT_EQ(resumed.scheduler.progress().samples, 2 * 605u);
  EXPECT_EQ(resumed.scheduler.progress().epochs.size(), 2u);
  // What the checkpoint does not cover was trained here, once.
  std::uint64_t here = 0;
  for (const auto& [row, times] : resumed.trained) {
    ASSERT_EQ(times, 1) << row.first << " " << row.second;
    ++here;
  }
  EXPECT_EQ(here, 2 * 605u - manifest.samples);
  for (std::size_t i = 0; i < manifest.data.trained.size(); ++i)
    for (std::uint64_t row = 0; row < manifest.data.trained[i]; ++row)
      ASSERT_EQ(resumed.trained.count({manifest.data.epoch, i * manifest.data.split_rows + row}), 0u);
}

// All that are cut at a clock.
constexpr std::pair<ConsistencyMode, ApplyMode> kModes[] = {{ConsistencyMode::kBsp, ApplyMode::kAggregated},
                                                            {ConsistencyMode::kSsp, ApplyMode::kAggregated},
                                                            {ConsistencyMode::kBsp, ApplyMode::kImmediate}};

TEST(Resume, CoversEveryRowOnceWhereverTheCutWas) {
  for (auto [mode, apply] : kModes)
    for (int steps = 1; steps < 60; steps += 3) {
      CutAndResume(mode, apply, steps, -100, 0);
      if (testing::Test::HasFatalFailure()) return;
    }
}

TEST(Resume, CoversEveryRowOnceWhoeverDiedDuringTheCut) {
  for (auto [mode, apply] : kModes)
    for (int steps = 1; steps < 30; steps += 4)
      for (int kill_step = 0; kill_step < 14; ++kill_step)
        for (std::size_t reached : {0u, 1u, 2u}) {
          CutAndResume(mode, apply, steps, kill_step, reached);
          if (testing::Test::HasFatalFailure()) return;
        }
}

// Rule K11: where shards cut where they stand, a stop waits for the batches that are under way, and nobody begins
// another.
TEST(Stop, WhatAStoppedRunHasTrainedIsNotTrainedAgain) {
  for (const ConsistencyMode mode : {ConsistencyMode::kSsp, ConsistencyMode::kAsp})
    for (int steps = 4; steps < 60; steps += 5) {
      Job job = Durable(2, 3);
      job.consistency = {mode, mode == ConsistencyMode::kSsp ? 3u : 0u, ApplyMode::kImmediate};
      FakeFleet fleet(job);
      fleet.rows[0] = 605;
      fleet.AddAll();
      for (int i = 0; i < steps; ++i) fleet.Step();
      if (fleet.scheduler.progress().phase != "train") break;
      fleet.shards[0]->writes_parts = false;  // it takes a while
      fleet.RequestStop();
      for (int i = 0; i < 20; ++i) fleet.Step();
      EXPECT_FALSE(fleet.scheduler.stopping());
      fleet.shards[0]->writes_parts = true;
      for (int i = 0; i < 100 && !fleet.scheduler.stopped(); ++i) fleet.Step();
      ASSERT_EQ(fleet.scheduler.progress().phase, "stopped");
      ASSERT_EQ(fleet.store.manifests.size(), 1u);
      const Manifest manifest = fleet.store.manifests.begin()->second;
      EXPECT_EQ(manifest.batches_behind, 0u);

      FakeFleet resumed(job, &manifest);
      resumed.rows[0] = 605;
      resumed.AddAll();
      ASSERT_TRUE(resumed.RunToEnd());
      EXPECT_EQ(manifest.samples, fleet.scheduler.progress().samples) << "trained behind the noted positions";
      auto times = resumed.trained;
      for (std::size_t i = 0; i < manifest.data.trained.size(); ++i)
        for (std::uint64_t row = 0; row < manifest.data.trained[i]; ++row)
          ++times[{manifest.data.epoch, i * manifest.data.split_rows + row}];
      ASSERT_EQ(times.size(), 605u);
      for (const auto& [row, count] : times) ASSERT_EQ(count, 1) << "row " << row.second << ", " << steps;
    }
}

// Who does not finish its batch in a lease is not waited for; what is trained meanwhile is counted.
TEST(Stop, AWorkerThatDoesNotDrainHoldsTheStopUpForALease) {
  Job job = Durable(2, 2);
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  FakeFleet fleet(job);
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 12; ++i) fleet.Step();
  fleet.workers[1]->drains = false;
  fleet.RequestStop();
  fleet.Pass(job.fleet.lease_seconds - 1.5);
  EXPECT_TRUE(fleet.store.manifests.empty());
  fleet.Pass(3);
  EXPECT_EQ(fleet.store.manifests.size(), 1u);
  EXPECT_EQ(fleet.scheduler.progress().phase, "stopped");
  EXPECT_EQ(
      std::ranges::count_if(
          fleet.notes, [](const auto& note) { return note.find("worker 1 has not finished") != std::string::npos; }),
      1);
}

// A worker died before the stop, and a shard that was silent for most of a lease is late with the verdict: without it
// the checkpoint would not count what the dead worker trained.
TEST(Stop, TheVerdictOnADeadWorkerIsWaitedFor) {
  Job job = Durable(2, 2);
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  const double lease = job.fleet.lease_seconds;
  FakeFleet fleet(job);
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 12; ++i) fleet.Step();
  fleet.Kill(*fleet.workers[1]);
  fleet.Pass(lease - 1);
  fleet.RequestStop();
  fleet.Pass(0.7);
  fleet.shards[0]->silent = true;
  fleet.Pass(lease - 0.5);  // a lease after the stop, and less than one of the shard's silence
  EXPECT_EQ(fleet.scheduler.view().checkpoint.id.value, 0u);
  fleet.shards[0]->silent = false;
  for (int i = 0; i < 100 && !fleet.scheduler.stopped(); ++i) fleet.Step();
  ASSERT_EQ(fleet.scheduler.progress().phase, "stopped");
  ASSERT_EQ(fleet.store.manifests.size(), 1u);
  EXPECT_EQ(fleet.store.manifests.begin()->second.samples, fleet.scheduler.progress().samples);
}

TEST(Resume, AFinishedRunEndsAtOnce) {
  FakeFleet fleet(Durable(1, 1));
  fleet.rows[0] = 60;
  fleet.AddAll();
  ASSERT_TRUE(fleet.RunToEnd());
  const Manifest manifest = fleet.store.manifests.begin()->second;
  FakeFleet again(Durable(1, 1), &manifest);
  again.rows[0] = 60;
  again.AddAll();
  ASSERT_TRUE(again.RunToEnd());
  EXPECT_TRUE(again.trained.empty());
  EXPECT_EQ(again.scheduler.progress().samples, 60u);
}

TEST(Resume, ATableOfAnotherShapeIsRefusedByName) {
  Manifest manifest;
  manifest.job_text = ToToml(Durable(1, 1));
  manifest.partition_bits = 6;
  TableSpec spec;
  spec.id = TableId(1);
  spec.name = "users";
  spec.dim = 8;
  manifest.tables.push_back(spec);
  FakeFleet fleet(Durable(1, 1), &manifest);
  fleet.AddAll();
  FakeWorker& worker = *fleet.workers[0];
  spec.dim = 16;
  fleet.Send(worker, CreateTable{.spec = spec, .code = ErrorCode::kOk, .message = {}});
  ASSERT_EQ(worker.tables.size(), 1u);
  EXPECT_EQ(worker.tables[0].code, ErrorCode::kAlreadyExists);
  EXPECT_NE(worker.tables[0].message.find("'users'"), std::string::npos);
  EXPECT_EQ(worker.tables[0].message, "table 'users': dim is 16 in the job and 8 in the checkpoint");
  spec.dim = 8;
  fleet.Send(worker, CreateTable{.spec = spec, .code = ErrorCode::kOk, .message = {}});
  ASSERT_EQ(worker.tables.size(), 2u);
  EXPECT_EQ(worker.tables[1].code, ErrorCode::kOk);
  EXPECT_EQ(worker.tables[1].spec.id, TableId(1));
}

// A fleet of two workers, resumed from a checkpoint with this table.
struct ResumedTable {
  explicit ResumedTable(const TableSpec& stored, const Job& job = Durable(1, 2)) : manifest(), fleet() {
    manifest.job_text = ToToml(job);
    manifest.partition_bits = 6;
    manifest.tables = {stored};
    fleet.emplace(job, &manifest);
    fleet->AddAll();
  }
  CreateTable Ask(std::size_t worker, const TableSpec& wanted) {
    fleet->Send(*fleet->workers[worker], CreateTable{.spec = wanted, .code = ErrorCode::kOk, .message = {}});
    return fleet->workers[worker]->tables.empty() ? CreateTable{} : fleet->workers[worker]->tables.back();
  }
  Manifest manifest;
  std::optional<FakeFleet> fleet;
};

TableSpec StoredTable() {
  TableSpec spec;
  spec.id = TableId(1);
  spec.name = "users";
  spec.dim = 8;
  spec.optimizer.kind = OptimizerKind::kAdagrad;
  return spec;
}

TEST(Resume, TakesOtherSettingsAndSaysSo) {
  ResumedTable resumed(StoredTable());
  TableSpec wanted = StoredTable();
  wanted.optimizer.learning_rate = 0.5f;
  wanted.optimizer.schedule = {ScheduleKind::kCosine, 10, 100, 0.1f};
  wanted.optimizer.clip_norm = 2;
  wanted.optimizer.l2 = 0.25f;
  wanted.push_codec = ValueCodec::kBf16;
  const CreateTable answer = resumed.Ask(0, wanted);
  EXPECT_EQ(answer.code, ErrorCode::kOk) << answer.message;
  ASSERT_EQ(resumed.fleet->scheduler.view().tables.size(), 1u);
  const TableSpec& now = resumed.fleet->scheduler.view().tables[0];
  EXPECT_EQ(now.optimizer, wanted.optimizer);
  EXPECT_EQ(now.push_codec, ValueCodec::kBf16);
  EXPECT_EQ(resumed.fleet->shards[0]->view.tables[0].optimizer, wanted.optimizer);  // confirmed before the answer
  EXPECT_EQ(resumed.fleet->notes.back(),
            "table users goes on with learning_rate 0.01 -> 0.5, l2 0 -> 0.25, clip_norm 0 -> 2, schedule constant -> "
            "cosine, warmup_clocks 0 -> 10, period_clocks 0 -> 100, push_codec fp32 -> bf16");
  // From here on the settings stand.
  EXPECT_EQ(resumed.Ask(1, wanted).code, ErrorCode::kOk);
  wanted.optimizer.learning_rate = 0.75f;
  EXPECT_EQ(resumed.Ask(1, wanted).code, ErrorCode::kAlreadyExists);
}

TEST(Resume, RefusesWhatTheStoredRowsDependOn) {
  struct {
    const char* message;
    void (*change)(TableSpec*);
  } cases[] = {
      {"dim is 9 in the job and 8 in the checkpoint", [](TableSpec* spec) { spec->dim = 9; }},
      {"optimizer is adam in the job and adagrad in the checkpoint",
       [](TableSpec* spec) { spec->optimizer.kind = OptimizerKind::kAdam; }},
      {"kind is dense in the job and sparse in the checkpoint",
       [](TableSpec* spec) { spec->kind = TableKind::kDense, spec->rows = 5; }},
      {"initializer is constant 1 in the job and zero in the checkpoint",
       [](TableSpec* spec) { spec->initializer = {InitializerKind::kConstant, 1, 0}; }},
  };
  for (const auto& tested : cases) {
    ResumedTable resumed(StoredTable());
    TableSpec wanted = StoredTable();
    tested.change(&wanted);
    const CreateTable answer = resumed.Ask(0, wanted);
    EXPECT_EQ(answer.code, ErrorCode::kAlreadyExists);
    EXPECT_EQ(answer.message, std::string("table 'users': ") + tested.message);
  }
  TableSpec dense = StoredTable();
  dense.kind = TableKind::kDense;
  dense.rows = 5;
  ResumedTable resumed(dense);
  dense.rows = 6;
  EXPECT_EQ(resumed.Ask(0, dense).message, "table 'users': rows is 6 in the job and 5 in the checkpoint");
}

TEST(Resume, ASettingOutOfItsRangeIsRefused) {
  ResumedTable resumed(StoredTable());
  TableSpec wanted = StoredTable();
  wanted.optimizer.learning_rate = -1;
  EXPECT_EQ(resumed.Ask(0, wanted).code, ErrorCode::kInvalidArgument);
}

// A run goes on in its own folder, which lay elsewhere when its best checkpoint was noted.
TEST(Checkpoint, TheBestOfAMovedFolderIsKept) {
  StorageSection storage;
  storage.checkpoints_kept = 1;
  Checkpoints checkpoints({.storage = storage,
                           .directory = "here/checkpoints",
                           .last = CheckpointId(3),
                           .best = "there/run//checkpoints/ckpt-2",
                           .start_clock = Clock(0),
                           .kept = {"here/checkpoints/ckpt-2", "here/checkpoints/ckpt-3"},
                           .resumed_directory = {},
                           .resumed = {}});
  EXPECT_EQ(checkpoints.best(), "here/checkpoints/ckpt-2");
  checkpoints.Begin({}, 0, Clock(0));
  EXPECT_EQ(checkpoints.Complete({}), std::vector<std::string>{"here/checkpoints/ckpt-3"});
}

}  // namespace
}  // namespace tarn::scheduler
