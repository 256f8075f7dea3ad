// Shows each way in which a worker's job ends early: errors of the job, of the data and of the client, a stop, a signal
// and a dead scheduler. Real scheduler and shards in this process; no clock decides anything but how long the dead
// scheduler's lease is.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/worker/train/local_fleet.h"
#include "tests/unit/worker/train/local_job.h"
#include "worker/train/trainer.h"

namespace tarn::worker {
namespace {

using testing::LocalFleet;
using Scene = testing::LocalJob;

TEST(TrainerEnd, AJobThatCachesATableTwiceIsRefused) {
  Scene scene(true);
  scene.job.train.hot_rows.rows = 1000;
  scene.job.tables["linear"].has_worker_cache = true;
  scene.job.tables["linear"].worker_cache.bytes = 4096;
  LocalFleet fleet(scene.job);
  Trainer trainer(scene.Options(), &fleet);
  EXPECT_EQ(trainer.Run(), TrainerEnd::kFailed);
  EXPECT_TRUE(trainer.error().message.starts_with("train.hot_rows = 1000 with worker_cache = 4KiB for table 'linear'"))
      << trainer.error().message;
  EXPECT_TRUE(fleet.Settle());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which end a program that asks for so much
TEST(TrainerEnd, AnErrorThatEndsTheClientIsReported) {
  Scene scene(true);
  scene.job.consistency = {.mode = ConsistencyMode::kSsp, .staleness = 2, .apply = ApplyMode::kImmediate};
  scene.job.worker_cache.bytes = std::uint64_t{1} << 60;
  LocalFleet fleet(scene.job);
  Trainer trainer(scene.Options(), &fleet);
  EXPECT_EQ(trainer.Run(), TrainerEnd::kFailed);
  EXPECT_EQ(trainer.error().code, ErrorCode::kTooLarge);
  EXPECT_TRUE(fleet.Settle());
  EXPECT_EQ(fleet.scheduler().stop_reason().code, ErrorCode::kTooLarge);
  EXPECT_NE(fleet.scheduler().stop_reason().reason.find("this machine has no memory"), std::string::npos);
}
#endif

TEST(TrainerEnd, MissingDataFailsTheJobAndEndsTheFleet) {
  Scene scene(true);
  scene.job.data.test = "nowhere";
  LocalFleet fleet(scene.job);
  Trainer trainer(scene.Options(), &fleet);
  EXPECT_EQ(trainer.Run(), TrainerEnd::kFailed);
  EXPECT_EQ(trainer.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(fleet.Settle());
  EXPECT_EQ(fleet.scheduler().stop_reason().code, ErrorCode::kNotFound);
  EXPECT_NE(fleet.scheduler().stop_reason().reason.find("nowhere"), std::string::npos);
}

TEST(TrainerEnd, SetsOfImagesOfDifferentSizesFailTheJob) {
  Scene scene(true);
  const auto write = [&](const std::string& name, char side) {  // two images
    const std::string head("\0\0\x08\x03\0\0\0\x02\0\0\0", 11), labels("\0\0\x08\x01\0\0\0\x02\0\x01", 10);
    scene.dir.Write(name + "-images-idx3-ubyte",
                    head + side + std::string("\0\0\0", 3) + side + std::string(2 * std::size_t(side * side), 'x'));
    scene.dir.Write(name + "-labels-idx1-ubyte", labels);
  };
  write("train", 3);
  write("valid", 3);
  write("test", 2);
  scene.job.data.format = DataFormat::kIdx;
  scene.job.model.kind = ModelKind::kMlp;
  LocalFleet fleet(scene.job);
  Trainer trainer(scene.Options(), &fleet);
  EXPECT_EQ(trainer.Run(), TrainerEnd::kFailed);
  EXPECT_EQ(trainer.error().message,
            "test has 4 values a row, but train has 9: all sets of a job must have rows of one size");
  EXPECT_TRUE(fleet.Settle());
}

// The connection fails in the step of the Welcome, before the worker has read the job.
TEST(TrainerEnd, AShardThatRefusesConnectionsFailsTheJobAndEndsTheFleet) {
  Scene scene(true);
  LocalFleet fleet(scene.job);
  fleet.RefuseShards(
      {ErrorCode::kInvalidArgument, "CURVE keys are required for non-loopback address tcp://10.0.0.1:1"});
  Trainer trainer(scene.Options(), &fleet);
  EXPECT_EQ(trainer.Run(), TrainerEnd::kFailed);
  EXPECT_EQ(trainer.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(fleet.Settle());
  EXPECT_NE(fleet.scheduler().stop_reason().reason.find("CURVE keys"), std::string::npos);
}

// The stop comes before the fleet is complete, while the data are being opened, or during training.
TEST(TrainerEnd, AStopEndsTheWorkerAtOnceInAnyPhase) {
  for (const std::string kind : {"Join", "Heartbeat", "Tick"}) {
    Scene scene(true);
    scene.job.storage.durability = Durability::kNone;
    if (kind == "Join") scene.job.fleet.workers = 2;
    LocalFleet fleet(scene.job);
    fleet.StopAt(kind);
    Trainer trainer(scene.Options(), &fleet);
    EXPECT_EQ(trainer.Run(), TrainerEnd::kDone) << kind << ": " << ToString(trainer.error());
    EXPECT_TRUE(fleet.Settle()) << kind;
    EXPECT_EQ(fleet.scheduler().progress().phase, "stopped");
    // At its first heartbeat the data may be open already: another thread opens them.
    if (kind != "Heartbeat") {
      EXPECT_EQ(fleet.sent().contains("CreateTable"), kind == "Tick") << kind;
    }
  }
}

TEST(TrainerEnd, ASignalEndsTheWorker) {
  Scene scene(true);
  LocalFleet fleet(scene.job);
  Trainer trainer(scene.Options(), &fleet);
  trainer.RequestAbort();
  EXPECT_EQ(trainer.Run(), TrainerEnd::kFailed);
  EXPECT_EQ(trainer.error().code, ErrorCode::kCancelled);
}

TEST(TrainerEnd, ADeadSchedulerEndsTheWorker) {
  Scene scene(true);
  LocalFleet fleet(scene.job);
  fleet.KillScheduler();
  TrainerOptions options = scene.Options();
  options.join_seconds_max = 0.05;
  Trainer trainer(options, &fleet);
  EXPECT_EQ(trainer.Run(), TrainerEnd::kFailed);
  EXPECT_EQ(trainer.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(trainer.error().message.starts_with("the scheduler at local has been silent"));
}

}  // namespace
}  // namespace tarn::worker
