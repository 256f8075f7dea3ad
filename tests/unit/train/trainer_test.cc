// Shows whole jobs of one worker from Join to Shutdown over a real scheduler and real shards in this process: epochs,
// validation, early stopping, the test set, the final checkpoint, and each way a worker ends. No clock decides
// anything but how long the dead scheduler's lease is.
#include "worker/train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "server/row_store.h"
#include "tests/unit/train/local_fleet.h"
#include "tests/unit/train/local_job.h"

namespace tarn::worker {
namespace {

using testing::kTrainRows;
using testing::LocalFleet;
using testing::RunToTheEnd;
using Scene = testing::LocalJob;

TEST(Trainer, StopsEarlyAfterAnEpochThatIsNoBetter) {
  Scene scene(true);
  LocalFleet fleet(scene.job);
  Trainer trainer(scene.Options(), &fleet);
  ASSERT_EQ(trainer.Run(), TrainerEnd::kDone) << ToString(trainer.error());
  ASSERT_TRUE(fleet.Settle());
  const scheduler::Progress progress = fleet.scheduler().progress();
  EXPECT_EQ(progress.phase, "done");
  ASSERT_EQ(progress.epochs.size(), 2u);  // the second was worse: patience is over
  EXPECT_EQ(progress.samples, 2 * kTrainRows);
  EXPECT_EQ(progress.counters.at("samples_trained"), double(2 * kTrainRows));
  EXPECT_EQ(progress.counters.at("batches"), 2.0 * 9);  // 8 of 8 rows and one of 6 each epoch
  EXPECT_EQ(progress.max_clock, progress.min_clock);
  EXPECT_EQ(progress.best_checkpoint, "checkpoints/ckpt-1");
  EXPECT_EQ(progress.last_checkpoint, "checkpoints/ckpt-2");  // the final one
  EXPECT_EQ(progress.batches_repeated, 0u);
  // What was written is what the shards hold in the end.
  EXPECT_EQ(progress.state_hash, fleet.shard(0).rows().StateHash() + fleet.shard(1).rows().StateHash());
  EXPECT_TRUE(std::filesystem::exists(scene.dir.path() + "/logs/trace-worker-0-3.json"));
}

TEST(Trainer, GoesOnAsLongAsItGetsBetter) {
  Scene scene(false);
  scene.job.train.epochs = 3;
  scene.job.fleet.lanes = 3;
  LocalFleet fleet(scene.job);
  Trainer trainer(scene.Options(), &fleet);
  ASSERT_EQ(trainer.Run(), TrainerEnd::kDone) << ToString(trainer.error());
  EXPECT_EQ(fleet.connected_lanes(), 3u);
  ASSERT_TRUE(fleet.Settle());
  const scheduler::Progress progress = fleet.scheduler().progress();
  ASSERT_EQ(progress.epochs.size(), 3u);
  EXPECT_EQ(progress.samples, 3 * kTrainRows);
  EXPECT_EQ(progress.best_checkpoint, "checkpoints/ckpt-3");
}

TEST(Trainer, TheSameJobGivesTheSameBits) {
  const auto run = [] {
    Scene scene(true);
    scene.job.data.shuffle = true;
    LocalFleet fleet(scene.job);
    Trainer trainer(scene.Options(), &fleet);
    EXPECT_EQ(trainer.Run(), TrainerEnd::kDone) << ToString(trainer.error());
    EXPECT_TRUE(fleet.Settle());
    return fleet.scheduler().progress().state_hash;
  };
  const std::uint64_t first = run();
  EXPECT_NE(first, 0u);
  EXPECT_EQ(run(), first);
}

TEST(Trainer, HotRowsChangeNoBitUnderBsp) {
  Scene scene(true);
  scene.job.data.shuffle = true;
  const scheduler::Progress without = RunToTheEnd(scene);
  for (const std::uint64_t rows : {1u, 100'000u}) {
    scene.job.train.hot_rows.rows = rows;
    const scheduler::Progress with = RunToTheEnd(scene);
    EXPECT_EQ(with.state_hash, without.state_hash);
    EXPECT_GT(with.counters.at("hot_rows"), 0);
    ASSERT_EQ(with.epochs.size(), without.epochs.size());
    for (std::size_t e = 0; e < with.epochs.size(); ++e)
      EXPECT_EQ(with.epochs[e].valid->log_loss, without.epochs[e].valid->log_loss);
  }
}

TEST(Trainer, HotRowsSparePullsWithinTheBound) {
  Scene scene(false);
  scene.job.train.epochs = 3;
  scene.job.consistency = {ConsistencyMode::kSsp, 5, ApplyMode::kImmediate};
  scene.job.worker_cache.own_pushes = OwnPushes::kBounded;
  const scheduler::Progress without = RunToTheEnd(scene);
  scene.job.train.hot_rows.rows = 1000;
  const scheduler::Progress with = RunToTheEnd(scene);
  EXPECT_GT(with.counters.at("hot_hits"), 0.5 * with.counters.at("hot_rows"));
  EXPECT_LT(with.counters.at("pull_bytes"), 0.6 * without.counters.at("pull_bytes"));
  const auto pulls = [](const std::vector<std::uint64_t>& histogram) {
    return std::accumulate(histogram.begin(), histogram.end(), std::uint64_t{0});
  };
  EXPECT_EQ(pulls(with.staleness), pulls(without.staleness)) << "each is counted once, wherever its rows were";
  ASSERT_LE(with.staleness.size(), 6u) << "the bound";
  EXPECT_GT(with.staleness.size(), without.staleness.size()) << "what is found is older than what servers have";
  EXPECT_LT(with.epochs.back().train.log_loss, with.epochs.front().train.log_loss);
}

// The host's arrays as a GPU's are under fp16: the loss is scaled, and the gradients of some batches are said not to
// fit; the losses of these are not finite.
class UnfitArrays final : public StepArrays {
 public:
  using Unfit = std::function<bool(std::size_t batch)>;
  UnfitArrays(const Model& model, Unfit unfit, std::vector<float>* scales)
      : host_(MakeHostArrays(model)), unfit_(std::move(unfit)), scales_(*scales) {}

  Status Bring(const StepSource& source) override {
    source_ = source;
    scores_.clear();
    TARN_RETURN_IF_ERROR(host_->Bring(source));
    batch_ = host_->batch();
    views_.assign(host_->views().begin(), host_->views().end());
    return {};
  }
  void Keep(const Predictions& predictions, std::size_t, std::size_t rows, QualityTally*) override {
    const bool lost = source_.train && unfit_(scales_.size());
    for (std::size_t r = 0; r < rows; ++r) scores_.push_back(lost ? std::nanf("") : predictions.logits[r]);
  }
  Expected<Gradients> Finish(const GradientRule& rule) override {
    auto gradients = host_->Finish(rule);
    if (!source_.train || !gradients) return gradients;
    gradients->finite = !unfit_(scales_.size());
    scales_.push_back(rule.unit);
    for (Buffer& table : gradients->values)
      for (float& g : table.as_mutable<float>()) g /= rule.unit;
    return gradients;
  }
  void Tally(QualityTally* quality) override {
    worker::Tally({.logits = scores_.data()}, source_.batch->labels, quality);
  }

 private:
  std::unique_ptr<StepArrays> host_;
  Unfit unfit_;
  std::vector<float>& scales_;  // of each training batch so far
  StepSource source_;
  std::vector<float> scores_;
};

struct UnfitRun {
  std::vector<float> scales;
  scheduler::Progress progress;
  std::map<std::string, int> sent;
};

UnfitRun RunUnfit(Scene* scene, const UnfitArrays::Unfit& unfit) {
  scene->job.train.epochs = 1;
  scene->job.train.precision = Precision::kFp16;
  LocalFleet fleet(scene->job);
  UnfitRun run;
  TrainerOptions options = scene->Options();
  options.stepper.make_arrays = [&](const Model& model) {
    return std::make_unique<UnfitArrays>(model, unfit, &run.scales);
  };
  Trainer trainer(options, &fleet);
  EXPECT_EQ(trainer.Run(), TrainerEnd::kDone) << ToString(trainer.error());
  EXPECT_TRUE(fleet.Settle());
  run.progress = fleet.scheduler().progress();
  run.sent = fleet.sent();
  return run;
}

// Rule A4.
TEST(Trainer, ABatchPassedOverIsTickedAndTrainedButNotPushed) {
  Scene scene(true);
  const UnfitRun all = RunUnfit(&scene, [](std::size_t) { return false; });
  const UnfitRun without = RunUnfit(&scene, [](std::size_t batch) { return batch == 3; });
  EXPECT_EQ(without.scales, (std::vector<float>{65536, 65536, 65536, 65536, 32768, 32768, 32768, 32768, 32768}));
  EXPECT_EQ(without.progress.counters.at("batches_passed_over"), 1);
  EXPECT_EQ(all.progress.counters.at("batches_passed_over"), 0);
  for (const std::string same : {"samples_trained", "batches"})
    EXPECT_EQ(without.progress.counters.at(same), all.progress.counters.at(same)) << same;
  EXPECT_EQ(without.progress.max_clock, all.progress.max_clock);
  EXPECT_EQ(without.progress.samples, kTrainRows);
  EXPECT_LT(without.sent.at("Push"), all.sent.at("Push"));
  EXPECT_NE(without.progress.state_hash, all.progress.state_hash);
  EXPECT_EQ(without.progress.counters.at("loss_rows"), double(kTrainRows - scene.job.train.batch_rows));
  EXPECT_TRUE(std::isfinite(without.progress.counters.at("loss_sum")));
  EXPECT_TRUE(std::isfinite(without.progress.epochs.at(0).train.log_loss));
}

TEST(Trainer, WithoutABatchThatFitsItEndsWithNothingPushed) {
  Scene scene(true);
  const UnfitRun run = RunUnfit(&scene, [](std::size_t) { return true; });
  EXPECT_EQ(run.scales.back(), 256.0f);  // halved by each of 9 batches but for the last
  EXPECT_EQ(run.progress.counters.at("batches_passed_over"), 9);
  EXPECT_EQ(run.progress.samples, kTrainRows);
  EXPECT_FALSE(run.sent.contains("Push"));
  EXPECT_EQ(run.progress.phase, "done");
}

// What came before the first lease is of no stage.
TEST(Trainer, TheLoopsStagesFitIntoItsTime) {
  Scene scene(true);
  LocalFleet fleet(scene.job);
  fleet.SlowUntil("LeaseRequest", std::chrono::milliseconds(100));
  Trainer trainer(scene.Options(), &fleet);
  ASSERT_EQ(trainer.Run(), TrainerEnd::kDone) << ToString(trainer.error());
  ASSERT_TRUE(fleet.Settle());
  const auto counters = fleet.scheduler().progress().counters;
  double stages = 0;
  for (const std::string stage : {"compute", "push", "pull", "wait"})
    stages += counters.at("stage." + stage + "_seconds");
  EXPECT_GT(counters.at("stage.compute_seconds"), 0);
  EXPECT_LE(stages, counters.at("stage.wall_seconds"));
}

TEST(Trainer, AJobThatKeepsATableTwiceIsRefused) {
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

TEST(Trainer, DataThatIsMissingFailsTheJobAndTellsTheFleet) {
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

// Before the fleet is complete, while the data are being opened, while it trains.
TEST(Trainer, ToldToStopItEndsAtOnceWhereverItIs) {
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
    EXPECT_EQ(fleet.sent().contains("CreateTable"), kind == "Tick");
  }
}

TEST(Trainer, ASignalEndsIt) {
  Scene scene(true);
  LocalFleet fleet(scene.job);
  Trainer trainer(scene.Options(), &fleet);
  trainer.RequestAbort();
  EXPECT_EQ(trainer.Run(), TrainerEnd::kFailed);
  EXPECT_EQ(trainer.error().code, ErrorCode::kCancelled);
}

TEST(Trainer, ADeadSchedulerEndsIt) {
  Scene scene(true);
  LocalFleet fleet(scene.job);
  fleet.KillScheduler();
  TrainerOptions options = scene.Options();
  options.join_seconds_max = 0.05;
  Trainer trainer(options, &fleet);
  EXPECT_EQ(trainer.Run(), TrainerEnd::kFailed);
  EXPECT_EQ(trainer.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(trainer.error().message.starts_with("the scheduler at local has not been heard"));
}

}  // namespace
}  // namespace tarn::worker
