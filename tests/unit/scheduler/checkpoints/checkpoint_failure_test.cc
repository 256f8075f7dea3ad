// Shows what follows a checkpoint that cannot be written or is abandoned: which ones the run continues without, which
// are retried, and when the partial directory is removed (rule K3).
#include <gtest/gtest.h>

#include <algorithm>

#include "core/limits.h"
#include "scheduler/checkpoints/checkpoints.h"
#include "scheduler/progress/summary.h"
#include "tests/unit/scheduler/fake_fleet.h"

namespace tarn::scheduler {
namespace {

int Count(const FakeFleet& fleet, std::string_view text) {
  return static_cast<int>(std::ranges::count_if(
      fleet.notes, [&](const std::string& note) { return note.find(text) != std::string::npos; }));
}

TEST(CheckpointFailure, AFailedPartIsReportedAndTrainingContinues) {
  FakeFleet fleet(Durable(2, 2));
  fleet.rows[0] = 1000;
  fleet.AddAll();
  for (int i = 0; i < 5; ++i) fleet.Step();
  fleet.shards[1]->part_error = "ckpt-1/shard-1.sst: No space left on device";
  fleet.RequestCheckpoint();
  for (int i = 0; i < 100 && fleet.store.removed.empty(); ++i) fleet.Step();
  ASSERT_EQ(fleet.store.removed.size(), 1u);
  EXPECT_FALSE(fleet.scheduler.stopping());
  bool told = false;
  for (const std::string& note : fleet.notes) told |= note.find("No space left") != std::string::npos;
  EXPECT_TRUE(told);
  EXPECT_EQ(fleet.scheduler.view().checkpoint.id, CheckpointId(0));
  fleet.shards[1]->part_error.clear();
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kOk);
}

TEST(CheckpointFailure, AFailedFinalCheckpointFailsTheJob) {
  Job job = Durable(1, 1);
  job.train.epochs = 2;
  FakeFleet fleet(job);
  fleet.rows[0] = 60;
  fleet.rows[1] = 20;
  fleet.store.fail = true;
  fleet.AddAll();
  ASSERT_TRUE(fleet.RunToEnd());
  EXPECT_EQ(fleet.scheduler.stop_reason().code, ErrorCode::kIo);
  EXPECT_NE(fleet.scheduler.stop_reason().reason.find("No space left"), std::string::npos);
  EXPECT_EQ(fleet.scheduler.progress().phase, "failed");
}

// The score belongs to these parameters, not to later ones, so the fleet waits for the disk.
TEST(CheckpointFailure, TheBestCheckpointIsRetriedBeforeTheNextEpoch) {
  for (const bool comes_back : {true, false}) {
    Job job = Durable(1, 1);
    job.train.epochs = 3;
    FakeFleet fleet(job);
    fleet.rows[0] = 60;
    fleet.rows[1] = 20;
    fleet.store.fail = true;
    fleet.AddAll();
    for (int i = 0; i < 1000 && Count(fleet, "(best) could not be written") < 2; ++i) fleet.Step();
    ASSERT_EQ(Count(fleet, "(best) could not be written"), 2);
    EXPECT_FALSE(fleet.scheduler.stopping());
    EXPECT_TRUE(fleet.scheduler.progress().best_lost) << "a run that stops now has no checkpoint of its best epoch";
    for (int i = 0; !comes_back && i < 1000 && Count(fleet, "(best) could not be written") < 3; ++i) fleet.Step();
    fleet.store.fail = false;
    ASSERT_TRUE(fleet.RunToEnd());
    const Progress progress = fleet.scheduler.progress();
    EXPECT_EQ(progress.phase, "done");
    EXPECT_EQ(Count(fleet, "(best) could not be written"), comes_back ? 2 : 3);
    EXPECT_EQ(Count(fleet, "epoch 1 was the best so far, but its checkpoint could not be written in 3 attempts"),
              comes_back ? 0 : 1);
    EXPECT_EQ(progress.best_lost, !comes_back);
    const auto summary = SummaryJson(job, progress, {});
    EXPECT_NE(summary.find(comes_back ? "\"best_kept\": true" : "\"best_kept\": false"), std::string::npos) << summary;
    if (!comes_back) continue;
    EXPECT_EQ(fleet.store.manifests.at(progress.best_checkpoint).epochs.size(), 1u);
  }
}

// If the checkpoint of the best epoch was lost, a resumed run still knows it, until a better epoch is kept.
TEST(CheckpointFailure, ALostBestCheckpointIsRecordedAcrossResumes) {
  Job job = Durable(1, 1);
  job.train.epochs = 2;
  FakeFleet fleet(job);
  fleet.rows[0] = 60;
  fleet.rows[1] = 20;
  fleet.store.fail = true;
  fleet.AddAll();
  for (int i = 0; i < 2000 && Count(fleet, "(best) could not be written") < 3; ++i) fleet.Step();
  fleet.store.fail = false;
  fleet.valid_loss = 2;  // worse
  ASSERT_TRUE(fleet.RunToEnd());
  ASSERT_FALSE(fleet.store.manifests.empty());
  const Manifest& last = fleet.store.manifests.rbegin()->second;
  EXPECT_TRUE(last.best_lost);
  EXPECT_TRUE(fleet.scheduler.progress().best_lost);
  for (const double loss : {2.0, 0.5}) {
    job.train.epochs = 3;
    FakeFleet again(job, &last);
    again.rows[0] = 60;
    again.rows[1] = 20;
    again.valid_loss = loss;
    again.AddAll();
    ASSERT_TRUE(again.RunToEnd());
    EXPECT_EQ(again.scheduler.progress().best_lost, loss == 2.0);
  }
}

// A full disk is not written to at every clock.
TEST(CheckpointFailure, AFailedCheckpointIsRetriedAfterGrowingPauses) {
  StorageSection storage;
  storage.durability = Durability::kLog;
  storage.checkpoint_seconds = 0;
  storage.checkpoint_clocks = 1;
  Checkpoints checkpoints({.storage = storage,
                           .directory = "run/checkpoints",
                           .last = {},
                           .best = {},
                           .start_clock = {},
                           .kept = {},
                           .resumed_directory = {},
                           .resumed = {}});
  const auto due = [&](TimeUs now) {
    const bool by_log = checkpoints.Due(now, Clock(0), limits::kLogBytesMax);
    EXPECT_EQ(checkpoints.Due(now, Clock(UINT64_MAX), 0), by_log) << "by clock the same";
    return by_log;
  };
  TimeUs now = 1;
  EXPECT_TRUE(due(now));
  for (const TimeUs pause : {1, 2, 4, 8, 16, 32, 60, 60}) {
    checkpoints.Begin({}, now, Clock(0));
    checkpoints.NotWritten(now + 5);
    checkpoints.Abandon();
    EXPECT_FALSE(due(now + 4 + pause * 1'000'000));
    EXPECT_TRUE(due(now + 5 + pause * 1'000'000));
    now += 5 + pause * 1'000'000;
  }
  checkpoints.Begin({}, now, Clock(0));
  checkpoints.Complete({});
  EXPECT_TRUE(due(now + 1));
}

TEST(CheckpointFailure, AnAbandonedDirectoryStaysWhileAShardMayWriteIntoIt) {
  FakeFleet fleet(Durable(2, 2));
  fleet.rows[0] = 10000;
  fleet.AddAll();
  for (int i = 0; i < 5; ++i) fleet.Step();
  fleet.shards[0]->part_error = "No space left on device";
  fleet.shards[1]->writes_parts = false;  // it still writes
  fleet.RequestCheckpoint();
  for (int i = 0; i < 200 && fleet.scheduler.view().checkpoint.id.value == 0; ++i) fleet.Step();
  ASSERT_EQ(fleet.scheduler.view().checkpoint.id, CheckpointId(1));
  fleet.shards[1]->writing = CheckpointId(1);
  fleet.shards[1]->deaf = true;
  for (int i = 0; i < 200 && fleet.scheduler.view().checkpoint.id.value != 0; ++i) fleet.Step();
  ASSERT_EQ(fleet.scheduler.view().checkpoint.id, CheckpointId(0));
  fleet.Pass(2);
  EXPECT_TRUE(fleet.store.removed.empty());  // shard 1 has not seen that the checkpoint is abandoned
  fleet.shards[1]->deaf = false;
  fleet.Pass(2);
  EXPECT_GE(fleet.shards[1]->view.version, fleet.scheduler.view().version);
  EXPECT_TRUE(fleet.store.removed.empty());    // it has, but its store is still writing
  fleet.shards[1]->writing = CheckpointId(2);  // its store has ended that write and is at the next
  fleet.Pass(2);
  EXPECT_EQ(fleet.store.removed, std::vector<std::string>{"run/checkpoints/ckpt-1"});
}

TEST(CheckpointFailure, ACheckpointAbandonedAtTheEndIsRemovedOnceTheFleetHasStopped) {
  FakeFleet fleet(Durable(2, 2));
  fleet.rows[0] = 10000;
  fleet.AddAll();
  for (int i = 0; i < 5; ++i) fleet.Step();
  for (auto& shard : fleet.shards) shard->writes_parts = false;
  fleet.RequestStop();
  for (int i = 0; i < 200 && fleet.scheduler.view().checkpoint.id.value == 0; ++i) fleet.Step();
  fleet.RequestStop();
  fleet.Pass(3);
  ASSERT_TRUE(fleet.scheduler.stopped());
  EXPECT_EQ(fleet.store.removed, std::vector<std::string>{"run/checkpoints/ckpt-1"});
}

}  // namespace
}  // namespace tarn::scheduler
