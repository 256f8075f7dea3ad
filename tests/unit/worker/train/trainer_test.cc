// Shows whole jobs of one worker from Join to Shutdown over a real scheduler and real shards in this process: epochs,
// validation, early stopping, the test set and the final checkpoint. trainer_end_test.cc has the ways to end early. No
// clock decides anything.
#include "worker/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "server/store/store.h"
#include "tests/unit/worker/train/local_fleet.h"
#include "tests/unit/worker/train/local_job.h"

namespace tarn::worker {
namespace {

using testing::kTrainRows;
using testing::LocalFleet;
using testing::RunToTheEnd;
using Scene = testing::LocalJob;

TEST(Trainer, StopsEarlyAfterAnEpochWithoutImprovement) {
  Scene scene(true);
  LocalFleet fleet(scene.job);
  Trainer trainer(scene.Options(), &fleet);
  ASSERT_EQ(trainer.Run(), TrainerEnd::kDone) << ToString(trainer.error());
  ASSERT_TRUE(fleet.Settle());
  const scheduler::Progress progress = fleet.scheduler().progress();
  EXPECT_EQ(progress.phase, "done");
  ASSERT_EQ(progress.epochs.size(), 2u);  // the second was worse: patience is over
  EXPECT_EQ(progress.samples, 2 * kTrainRows);
  EXPECT_EQ(progress.counters.at("samples"), double(2 * kTrainRows));
  EXPECT_EQ(progress.counters.at("batches"), 2.0 * 9);  // 8 of 8 rows and one of 6 each epoch
  EXPECT_EQ(progress.max_clock, progress.min_clock);
  EXPECT_EQ(progress.best_checkpoint, "checkpoints/ckpt-1");
  EXPECT_EQ(progress.last_checkpoint, "checkpoints/ckpt-2");  // the final one
  EXPECT_EQ(progress.batches_repeated, 0u);
  // The checkpoint has the hash of the rows that the shards have at the end.
  EXPECT_EQ(progress.state_hash, fleet.shard(0).rows().StateHash().value() + fleet.shard(1).rows().StateHash().value());
  EXPECT_TRUE(std::filesystem::exists(scene.dir.path() + "/logs/trace-worker-0-3.json"));
}

TEST(Trainer, ContinuesWhileEpochsImprove) {
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

TEST(Trainer, HotRowsSavePullsWithinTheBound) {
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

// The host's arrays, behaving like a GPU's: a step ends some polls after it was started. Under fp16 the loss is scaled,
// and the gradients of selected batches are reported to overflow; the losses of these batches are not finite.
class LateArrays final : public StepArrays {
 public:
  using Unfit = std::function<bool(std::size_t batch)>;  // the n-th training batch
  struct Log {
    std::size_t batches = 0, under_way = 0, most_under_way = 0;
    std::vector<float> scales;  // of each training batch so far
  };

  LateArrays(const Model& model, Unfit unfit, Log* log)
      : host_(MakeHostArrays(model)), unfit_(std::move(unfit)), log_(*log) {}

  Status Bring(const StepSource& source) override {
    source_ = source;
    scores_.clear();
    lost_ = source.train && unfit_(log_.batches++);
    log_.most_under_way = std::max(log_.most_under_way, ++log_.under_way);
    TARN_RETURN_IF_ERROR(host_->Bring(source));
    batch_ = host_->batch();
    views_.assign(host_->views().begin(), host_->views().end());
    return {};
  }
  void Keep(const Predictions& predictions, std::size_t, std::size_t rows, QualityTally*) override {
    for (std::size_t r = 0; r < rows; ++r) scores_.push_back(lost_ ? std::nanf("") : predictions.logits[r]);
  }
  Status Return(const GradientRule& rule) override {
    unit_ = rule.unit;
    looks_left_ = kLooks;
    return host_->Return(rule);
  }
  bool Done() override {
    if (looks_left_ > 0) --looks_left_;
    return looks_left_ == 0;
  }
  Expected<Gradients> Finish() override {
    --log_.under_way;
    auto gradients = host_->Finish();
    if (!source_.train || !gradients) return gradients;
    gradients->finite = !lost_;
    log_.scales.push_back(unit_);
    for (Buffer& table : gradients->values)
      for (float& g : table.as_mutable<float>()) g /= unit_;
    return gradients;
  }
  void Tally(QualityTally* quality) override {
    worker::Tally({.logits = scores_.data()}, source_.batch->labels, quality);
  }

 private:
  static constexpr int kLooks = 7;

  std::unique_ptr<StepArrays> host_;
  Unfit unfit_;
  Log& log_;
  StepSource source_;
  std::vector<float> scores_;
  bool lost_ = false;
  float unit_ = 1;
  int looks_left_ = 0;
};

// The host's arrays, with a function that is called at the beginning of each step.
class WatchedArrays final : public StepArrays {
 public:
  WatchedArrays(const Model& model, std::function<void(const StepSource&)> watch)
      : host_(MakeHostArrays(model)), watch_(std::move(watch)) {}

  Status Bring(const StepSource& source) override {
    watch_(source);
    TARN_RETURN_IF_ERROR(host_->Bring(source));
    batch_ = host_->batch();
    views_.assign(host_->views().begin(), host_->views().end());
    return {};
  }
  void Keep(const Predictions& predictions, std::size_t begin, std::size_t rows, QualityTally* quality) override {
    host_->Keep(predictions, begin, rows, quality);
  }
  Status Return(const GradientRule& rule) override { return host_->Return(rule); }
  Expected<Gradients> Finish() override { return host_->Finish(); }

 private:
  std::unique_ptr<StepArrays> host_;
  std::function<void(const StepSource&)> watch_;
};

// The host's arrays, with NaN predictions for selected batches.
class PoisonedArrays final : public StepArrays {
 public:
  using Choose = std::function<bool(const StepSource&)>;
  PoisonedArrays(const Model& model, Choose choose) : host_(MakeHostArrays(model)), choose_(std::move(choose)) {}

  Status Bring(const StepSource& source) override {
    source_ = source;
    poisoned_ = choose_(source);
    TARN_RETURN_IF_ERROR(host_->Bring(source));
    batch_ = host_->batch();
    views_.assign(host_->views().begin(), host_->views().end());
    return {};
  }
  void Keep(const Predictions& predictions, std::size_t begin, std::size_t rows, QualityTally* quality) override {
    if (!poisoned_) return host_->Keep(predictions, begin, rows, quality);
    const std::vector<float> logits(rows, std::nanf(""));
    worker::Tally({.logits = logits.data()}, std::span(source_.batch->labels).subspan(begin, rows), quality);
  }
  Status Return(const GradientRule& rule) override { return host_->Return(rule); }
  Expected<Gradients> Finish() override { return host_->Finish(); }

 private:
  std::unique_ptr<StepArrays> host_;
  Choose choose_;
  StepSource source_;
  bool poisoned_ = false;
};

struct DivergedRun {
  TrainerEnd end;
  Error error;
  std::string phase;
  Shutdown reason;
  std::map<std::string, int> sent;
};

DivergedRun RunDiverging(const Scene& scene, const TrainerOptions& options) {
  LocalFleet fleet(scene.job);
  Trainer trainer(options, &fleet);
  DivergedRun run{.end = trainer.Run(), .error = trainer.error(), .phase = {}, .reason = {}, .sent = {}};
  EXPECT_TRUE(fleet.Settle());
  run.phase = fleet.scheduler().progress().phase;
  run.reason = fleet.scheduler().stop_reason();
  run.sent = fleet.sent();
  return run;
}

// The loss of the fourth batch is NaN: the batch is not pushed, and the error names clock 3 and the largest value.
TEST(Trainer, ANonFiniteLossEndsTheJobBeforeItsBatchIsPushed) {
  Scene scene(true);
  scene.job.train.prefetch = 0;
  for (const std::uint64_t hot_rows : {0u, 1000u}) {
    scene.job.train.hot_rows.rows = hot_rows;
    std::size_t batches = 0;
    TrainerOptions options = scene.Options();
    options.pipeline.stepper.make_arrays = [&](const Model& model) {
      return std::make_unique<PoisonedArrays>(model,
                                              [&](const StepSource& source) { return source.train && ++batches == 4; });
    };
    const DivergedRun run = RunDiverging(scene, options);
    EXPECT_EQ(run.end, TrainerEnd::kFailed);
    EXPECT_EQ(run.error.code, ErrorCode::kDiverged);
    EXPECT_EQ(run.phase, "diverged");
    EXPECT_EQ(run.reason.reason, "worker 0: " + run.error.message);
    EXPECT_TRUE(
        run.error.message.starts_with("training has diverged at clock 3 (epoch 1): the log-loss of a batch of the "
                                      "training set is not a finite number"))
        << run.error.message;
    EXPECT_TRUE(run.error.message.contains("in table 'linear', key ")) << run.error.message;
    EXPECT_EQ(batches, 4u);
    EXPECT_EQ(run.sent.at("Push"), 3 * 2) << "of three batches, to two shards";
  }
}

TEST(Trainer, ANonFiniteEvaluationEndsTheJobAsDiverged) {
  Scene scene(true);
  TrainerOptions options = scene.Options();
  options.pipeline.stepper.make_arrays = [](const Model& model) {
    return std::make_unique<PoisonedArrays>(model, [](const StepSource& source) { return !source.train; });
  };
  const DivergedRun run = RunDiverging(scene, options);
  EXPECT_EQ(run.phase, "diverged");
  EXPECT_TRUE(
      run.error.message.starts_with("training has diverged at clock 9 (epoch 1): the log-loss of a batch of the "
                                    "validation set"))
      << run.error.message;
}

// With a rate that is far too high rows overflow on the servers: the error names a table and a key that has one.
TEST(Trainer, ATooHighLearningRateEndsTheJobAsDiverged) {
  Scene scene(true);
  scene.job.model.kind = ModelKind::kFm;
  scene.job.optimizer.linear.kind = scene.job.optimizer.embedding.kind = "sgd";
  scene.job.optimizer.linear.learning_rate = scene.job.optimizer.embedding.learning_rate = 1e6f;
  scene.job.train.patience = 0;
  const DivergedRun run = RunDiverging(scene, scene.Options());
  EXPECT_EQ(run.end, TrainerEnd::kFailed);
  EXPECT_EQ(run.phase, "diverged");
  EXPECT_TRUE(run.error.message.contains("table 'embedding'") || run.error.message.contains("table 'linear'"))
      << run.error.message;
}

struct LateRun {
  LateArrays::Log log;
  scheduler::Progress progress;
  std::map<std::string, int> sent;
};

LateRun RunLate(
    const Scene& scene, std::size_t steps, const LateArrays::Unfit& unfit = [](std::size_t) { return false; }) {
  LocalFleet fleet(scene.job);
  LateRun run;
  TrainerOptions options = scene.Options();
  options.pipeline.stepper.make_arrays = [&](const Model& model) {
    return std::make_unique<LateArrays>(model, unfit, &run.log);
  };
  options.pipeline.stepper.steps = steps;
  Trainer trainer(options, &fleet);
  EXPECT_EQ(trainer.Run(), TrainerEnd::kDone) << ToString(trainer.error());
  EXPECT_TRUE(fleet.Settle());
  run.progress = fleet.scheduler().progress();
  run.sent = fleet.sent();
  return run;
}

LateRun RunUnfit(Scene* scene, const LateArrays::Unfit& unfit, std::size_t steps = 1) {
  scene->job.train.epochs = 1;
  scene->job.train.precision = Precision::kFp16;
  return RunLate(*scene, steps, unfit);
}

// A step that is prepared while another one is computed has rows as recent as the bound requires, and without staleness
// changes no bit.
TEST(Trainer, TwoStepsAtATimeChangeNoBitUnderBsp) {
  Scene scene(true);
  scene.job.train.prefetch = 3;
  const LateRun one = RunLate(scene, 1), two = RunLate(scene, 2);
  EXPECT_EQ(one.progress.state_hash, RunToTheEnd(scene).state_hash);
  EXPECT_EQ(two.progress.state_hash, one.progress.state_hash);
  EXPECT_EQ(one.log.most_under_way, 1u);
  EXPECT_EQ(two.progress.samples, one.progress.samples);
  EXPECT_EQ(two.progress.counters.at("loss_sum"), one.progress.counters.at("loss_sum"));

  scene.job.consistency = {ConsistencyMode::kSsp, 5, ApplyMode::kImmediate};
  scene.job.worker_cache.own_pushes = OwnPushes::kBounded;
  scene.job.train.patience = 0;
  for (const std::uint64_t hot_rows : {0u, 1000u}) {
    scene.job.train.hot_rows.rows = hot_rows;
    const LateRun bounded = RunLate(scene, 2);
    EXPECT_EQ(bounded.log.most_under_way, 2u);
    EXPECT_LE(bounded.progress.staleness.size(), 6u) << "the bound";
    EXPECT_EQ(bounded.progress.samples, 10 * kTrainRows);
    EXPECT_EQ(bounded.progress.counters.at("batches"), 10.0 * 9);
    EXPECT_EQ(bounded.progress.counters.at("loss_rows"), 10.0 * kTrainRows);
    ASSERT_EQ(bounded.progress.epochs.size(), 10u);
    for (const auto& epoch : bounded.progress.epochs)
      EXPECT_EQ(epoch.train.rows, kTrainRows) << "each batch in its lease";
    EXPECT_LT(bounded.progress.epochs.back().train.log_loss, bounded.progress.epochs.front().train.log_loss);
  }
}

// A step that takes longer than a heartbeat period: the loop continues meanwhile, and the bits are the same.
TEST(Trainer, LongStepsAreComputedByAnotherThread) {
  Scene scene(true);
  scene.job.data.shuffle = true;
  const auto run = [&](double long_step_seconds) {
    LocalFleet fleet(scene.job);
    TrainerOptions options = scene.Options();
    options.pipeline.stepper.long_step_seconds = long_step_seconds;
    Trainer trainer(options, &fleet);
    EXPECT_EQ(trainer.Run(), TrainerEnd::kDone) << ToString(trainer.error());
    EXPECT_TRUE(fleet.Settle());
    return fleet.scheduler().progress();
  };
  const scheduler::Progress within = run(1e9), beside = run(0);
  EXPECT_EQ(beside.state_hash, within.state_hash);
  EXPECT_EQ(beside.counters.at("loss_sum"), within.counters.at("loss_sum"));
  EXPECT_EQ(beside.samples, within.samples);
  EXPECT_GT(beside.counters.at("cpu_seconds.compute"), 0);
  EXPECT_GE(beside.counters.at("cpu_seconds.loop"), beside.counters.at("cpu_seconds.compute"));
}

// Without staleness bounds no pull would slow down a worker whose servers are behind.
TEST(Trainer, UnacknowledgedPushesPauseTraining) {
  Scene scene(false);
  scene.job.train.epochs = 2;
  scene.job.consistency = {ConsistencyMode::kAsp, 0, ApplyMode::kImmediate};
  for (const std::size_t bytes : {std::size_t{0}, limits::kQueuedBytesMax}) {
    LocalFleet fleet(scene.job);
    fleet.DelayAcks(5);
    TrainerOptions options = scene.Options();
    options.pipeline.waiting_bytes_max = bytes;
    options.pipeline.stepper.long_step_seconds = 1e9;  // computes steps within the loop
    std::size_t waiting = 0;
    options.pipeline.stepper.make_arrays = [&](const Model& model) {
      return std::make_unique<WatchedArrays>(model, [&](const StepSource& source) {
        if (source.train) waiting = std::max(waiting, fleet.delayed_acks());
      });
    };
    Trainer trainer(options, &fleet);
    ASSERT_EQ(trainer.Run(), TrainerEnd::kDone) << ToString(trainer.error());
    EXPECT_EQ(waiting == 0, bytes == 0) << waiting;
    EXPECT_TRUE(fleet.Settle());
    EXPECT_EQ(fleet.scheduler().progress().samples, 2 * kTrainRows);
  }
}

TEST(Trainer, OutOfMemoryInABatchIsAnErrorOfTheJob) {
  for (const double long_step_seconds : {0.0, 1e9}) {
    Scene scene(false);
    LocalFleet fleet(scene.job);
    TrainerOptions options = scene.Options();
    options.pipeline.stepper.long_step_seconds = long_step_seconds;
    options.pipeline.stepper.make_arrays = [](const Model& model) {
      return std::make_unique<WatchedArrays>(model, [](const StepSource&) { throw std::bad_alloc(); });
    };
    Trainer trainer(options, &fleet);
    EXPECT_EQ(trainer.Run(), TrainerEnd::kFailed);
    EXPECT_EQ(trainer.error().code, ErrorCode::kTooLarge);
    EXPECT_NE(trainer.error().message.find("train.batch_rows"), std::string::npos) << trainer.error().message;
    EXPECT_TRUE(fleet.Settle());
  }
}

// Rule A4.
TEST(Trainer, ASkippedBatchIsTickedAndTrainedButNotPushed) {
  Scene scene(true);
  const LateRun all = RunUnfit(&scene, [](std::size_t) { return false; });
  const LateRun without = RunUnfit(&scene, [](std::size_t batch) { return batch == 3; });
  EXPECT_EQ(without.log.scales, (std::vector<float>{65536, 65536, 65536, 65536, 32768, 32768, 32768, 32768, 32768}));
  EXPECT_EQ(without.progress.counters.at("batches_passed_over"), 1);
  EXPECT_EQ(all.progress.counters.at("batches_passed_over"), 0);
  for (const std::string same : {"samples", "batches"})
    EXPECT_EQ(without.progress.counters.at(same), all.progress.counters.at(same)) << same;
  EXPECT_EQ(without.progress.max_clock, all.progress.max_clock);
  EXPECT_EQ(without.progress.samples, kTrainRows);
  EXPECT_LT(without.sent.at("Push"), all.sent.at("Push"));
  EXPECT_NE(without.progress.state_hash, all.progress.state_hash);
  EXPECT_EQ(without.progress.counters.at("loss_rows"), double(kTrainRows - scene.job.train.batch_rows));
  EXPECT_TRUE(std::isfinite(without.progress.counters.at("loss_sum")));
  EXPECT_TRUE(std::isfinite(without.progress.epochs.at(0).train.log_loss));
}

// The next batch began with the scale that overflowed, but does not overflow: it counts, and the scale is halved once.
TEST(Trainer, ABatchMayBeSkippedWhileTheNextIsComputed) {
  Scene scene(true);
  scene.job.train.prefetch = 3;
  scene.job.consistency = {ConsistencyMode::kSsp, 5, ApplyMode::kImmediate};
  scene.job.worker_cache.own_pushes = OwnPushes::kBounded;  // otherwise the next batch waits for the push of the first
  const LateRun run = RunUnfit(&scene, [](std::size_t batch) { return batch == 3; }, 2);
  EXPECT_EQ(run.log.most_under_way, 2u);
  EXPECT_EQ(run.log.scales, (std::vector<float>{65536, 65536, 65536, 65536, 65536, 32768, 32768, 32768, 32768}));
  EXPECT_EQ(run.progress.counters.at("batches_passed_over"), 1);
  EXPECT_EQ(run.progress.counters.at("loss_rows"), double(kTrainRows - scene.job.train.batch_rows));
  EXPECT_EQ(run.progress.samples, kTrainRows);
}

TEST(Trainer, IfEveryBatchIsSkippedNothingIsPushed) {
  Scene scene(true);
  const LateRun run = RunUnfit(&scene, [](std::size_t) { return true; });
  EXPECT_EQ(run.log.scales.back(), 256.0f);  // halved by each of 9 batches except the last
  EXPECT_EQ(run.progress.counters.at("batches_passed_over"), 9);
  EXPECT_EQ(run.progress.samples, kTrainRows);
  EXPECT_FALSE(run.sent.contains("Push"));
  EXPECT_EQ(run.progress.phase, "done");
}

// A too large scale of the loss is no divergence (rule A4); a non-finite loss at scale 1 is.
TEST(Trainer, UnderFp16OnlyABatchThatIsNotSkippedDiverges) {
  Scene scene(true);
  scene.job.train.precision = Precision::kFp16;
  scene.job.train.patience = 0;
  LateArrays::Log log;
  TrainerOptions options = scene.Options();
  options.pipeline.stepper.make_arrays = [&](const Model& model) {
    return std::make_unique<LateArrays>(model, [](std::size_t) { return true; }, &log);
  };
  const DivergedRun run = RunDiverging(scene, options);
  EXPECT_EQ(run.phase, "diverged");
  EXPECT_EQ(log.scales.size(), 17u) << "16 batches that halve the factor to 1, and one more";
  EXPECT_EQ(log.scales.back(), 1.0f);
  EXPECT_TRUE(run.error.message.contains(" at clock 16 (epoch 2)")) << run.error.message;
}

// The time before the first lease belongs to no stage.
TEST(Trainer, TheTimesOfTheStagesFitIntoTheTotal) {
  Scene scene(true);
  LocalFleet fleet(scene.job);
  fleet.SlowUntil("LeaseRequest", std::chrono::milliseconds(100));
  Trainer trainer(scene.Options(), &fleet);
  ASSERT_EQ(trainer.Run(), TrainerEnd::kDone) << ToString(trainer.error());
  ASSERT_TRUE(fleet.Settle());
  const auto counters = fleet.scheduler().progress().counters;
  double stages = 0;
  for (const std::string stage : {"compute", "push", "pull", "wait"}) stages += counters.at("stage_seconds." + stage);
  EXPECT_GT(counters.at("stage_seconds.compute"), 0);
  EXPECT_LE(stages, counters.at("stage_seconds.wall"));
}

}  // namespace
}  // namespace tarn::worker
