// Shows checkpoints from the order to the manifest (rules K1-K6).
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

TEST(Checkpoint, IsCutAtAClockThatNoWorkerHasPassed) {
  FakeFleet fleet(Durable(2, 2));
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 12; ++i) fleet.Step();
  const Clock before = fleet.workers[0]->clock;
  fleet.RequestCheckpoint();
  const Manifest* manifest = WaitForManifest(fleet, 1);
  ASSERT_NE(manifest, nullptr);
  EXPECT_GT(manifest->resume_clock, before);
  // Splits are granted by rank and clocks are lockstep, so each worker has trained the clocks below the cut, ten rows a
  // clock.
  EXPECT_EQ(Sum(manifest->data.trained), manifest->resume_clock.value * 2 * 10);
  EXPECT_EQ(manifest->samples, Sum(manifest->data.trained));
  ASSERT_EQ(manifest->generations.size(), 1u);
  EXPECT_EQ(manifest->generations[0].id, manifest->id);
  EXPECT_EQ(manifest->generations[0].clock, manifest->resume_clock);
  EXPECT_EQ(manifest->generations[0].files.size(), 2u);
  EXPECT_EQ(manifest->generations[0].state_hash, 201u);
  EXPECT_EQ(manifest->generations[0].tables, (std::vector<CheckpointTable>{{TableId(1), 6, 0, 4, 20}}));
  EXPECT_FALSE(manifest->state_hash);  // requested only of the last checkpoint
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

// Trains until the second epoch is scored. Returns false if it is not.
bool TrainUntilSecondValidation(FakeFleet* fleet) {
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

// Between two epochs no proposal limits the workers.
TEST(Checkpoint, NoEpochBeginsBeforeEveryShardHasTheOrder) {
  FakeFleet fleet(ThreeEpochs());
  ASSERT_TRUE(TrainUntilSecondValidation(&fleet));
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

// The checkpoint is ordered while the second epoch is scored and complete once the third is trained; it has none of it.
TEST(Checkpoint, AFinalCheckpointFollowsOneThatLacksTheLastEpoch) {
  FakeFleet fleet(ThreeEpochs());
  ASSERT_TRUE(TrainUntilSecondValidation(&fleet));
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

TEST(Checkpoint, ImmediateTablesAreCutAtOnce) {
  Job job = Durable(2, 2);
  job.consistency = {.mode = ConsistencyMode::kAsp, .staleness = 0, .apply = ApplyMode::kImmediate};
  FakeFleet fleet(job);
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 12; ++i) fleet.Step();
  fleet.Pass(1);  // heartbeats report the progress of the workers
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

TEST(Checkpoint, BspTablesAreCutAtAClockInEveryApplyMode) {
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

TEST(Checkpoint, OneBspOrAggregatedTableMakesTheCutAtAClock) {
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
  EXPECT_LE(fleet.store.manifests.size(), 3u);  // the two newest and the best

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

// A program that requests no leases: its pushes are checkpointed too, so that logs do not grow without bound.
TEST(Checkpoint, PeriodicWithoutLeases) {
  Job job = Durable(1, 1);
  job.consistency = {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate};
  job.storage.checkpoint_seconds = 5;
  FakeFleet fleet(job);
  fleet.AddAll();
  TableSpec spec;
  spec.name = "t";
  fleet.Pass(20);
  EXPECT_TRUE(fleet.store.manifests.empty()) << "no table exists yet";
  fleet.Send(*fleet.workers[0], CreateTable{.spec = spec, .code = ErrorCode::kOk, .message = {}});
  for (int i = 0; i < 40; ++i) fleet.Pass(0.5);
  EXPECT_GE(fleet.store.manifests.size() + fleet.store.removed.size(), 2u);
}

// A report from before the checkpoint that shortened the log does not cause another checkpoint.
TEST(Checkpoint, ALogThatIsTooLongCausesOneCheckpoint) {
  Job job = Durable(1, 1);
  job.storage.durability = Durability::kLog;
  job.storage.checkpoint_seconds = 0;
  job.consistency = {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate};
  FakeFleet fleet(job);
  fleet.rows[0] = 100'000;
  fleet.AddAll();
  for (int i = 0; i < 4; ++i) fleet.Step();
  FakeShard& shard = *fleet.shards[0];
  const auto report_long_log = [&](ViewVersion view) {
    tarn::Heartbeat beat;
    beat.view = view;
    beat.clock = shard.min_clock;
    beat.log_bytes = limits::kLogBytesMax;
    fleet.Send(shard, beat);
    shard.silent = true;  // until the scheduler's timer has run
    fleet.Pass(1);
    shard.silent = false;
    for (int i = 0; i < 10; ++i) fleet.Pass(0.5);
  };
  const ViewVersion before = shard.view.version;
  report_long_log(before);
  EXPECT_EQ(fleet.store.manifests.size(), 1u);
  report_long_log(before);
  EXPECT_EQ(fleet.store.manifests.size(), 1u);
  report_long_log(shard.view.version);
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

// A run continues in its folder, which had another path when its best checkpoint was recorded.
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
