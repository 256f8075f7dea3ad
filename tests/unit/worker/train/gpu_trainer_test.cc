// Shows whole jobs of one worker that computes on a GPU with hot rows in its memory: under bsp hot rows change no bit,
// and the scores equal the CPU's; within a staleness bound they save pulls; plans made by the GPU change no bit.
// Skipped, with the reason, if there is no GPU.
#include "kernels/stream.h"
#include "tests/unit/worker/train/local_job.h"

namespace tarn::worker {
namespace {

using testing::LocalJob;
using testing::RunToTheEnd;

class GpuTrainerTest : public ::testing::TestWithParam<ModelKind> {
 protected:
  void SetUp() override {
    if (const auto stream = kernels::Stream::Make(); !stream) GTEST_SKIP() << stream.error().message;
  }

  // Trains further than the validation set likes.
  static void Prepare(LocalJob* scene) {
    scene->job.model.kind = GetParam();
    scene->job.model.embedding_dim = 4;
    scene->job.data.shuffle = true;
    scene->job.train.epochs = 3;
    scene->job.train.patience = 0;
  }

  static void ExpectSameScores(const scheduler::Progress& actual, const scheduler::Progress& expected) {
    ASSERT_EQ(actual.epochs.size(), expected.epochs.size());
    for (std::size_t e = 0; e < actual.epochs.size(); ++e) {
      EXPECT_NEAR(actual.epochs[e].train.log_loss, expected.epochs[e].train.log_loss, 1e-5);
      EXPECT_NEAR(actual.epochs[e].valid->log_loss, expected.epochs[e].valid->log_loss, 1e-5);
    }
  }
};

TEST_P(GpuTrainerTest, HotRowsChangeNoBitUnderBsp) {
  LocalJob scene(true);
  Prepare(&scene);
  const scheduler::Progress on_cpu = RunToTheEnd(scene);
  scene.job.train.device = "gpu";
  const scheduler::Progress without = RunToTheEnd(scene);
  ExpectSameScores(without, on_cpu);
  for (const std::uint64_t rows : {1u, 100'000u}) {
    scene.job.train.hot_rows.rows = rows;
    const scheduler::Progress with = RunToTheEnd(scene);
    EXPECT_EQ(with.state_hash, without.state_hash);
    EXPECT_GT(with.counters.at("hot_rows"), 0);
    ExpectSameScores(with, on_cpu);
  }
}

// The GPU plans every batch, or only the larger batches of evaluation.
TEST_P(GpuTrainerTest, PlansOfTheGpuChangeNoBit) {
  LocalJob scene(true);
  Prepare(&scene);
  scene.job.train.device = "gpu";
  const scheduler::Progress of_host = RunToTheEnd(scene);
  for (const std::size_t keys_min : {0u, 30u})
    for (const std::uint64_t hot_rows : {0u, 100'000u}) {
      scene.device_plan_keys_min = keys_min;
      scene.job.train.hot_rows.rows = hot_rows;
      const scheduler::Progress of_gpu = RunToTheEnd(scene);
      EXPECT_EQ(of_gpu.state_hash, of_host.state_hash);
      ExpectSameScores(of_gpu, of_host);
    }
}

TEST_P(GpuTrainerTest, HotRowsSavePullsWithinTheBound) {
  LocalJob scene(false);
  Prepare(&scene);
  scene.job.consistency = {ConsistencyMode::kSsp, 5, ApplyMode::kImmediate};
  scene.job.worker_cache.own_pushes = OwnPushes::kBounded;
  scene.job.train.device = "gpu";
  scene.job.train.hot_rows.rows = 1000;
  const scheduler::Progress progress = RunToTheEnd(scene);
  EXPECT_GT(progress.counters.at("hot_hits"), 0.5 * progress.counters.at("hot_rows"));
  EXPECT_LE(progress.staleness.size(), 6u) << "the bound";
  EXPECT_LT(progress.epochs.back().train.log_loss, progress.epochs.front().train.log_loss);
}

INSTANTIATE_TEST_SUITE_P(Models, GpuTrainerTest, ::testing::Values(ModelKind::kLogisticRegression, ModelKind::kFm),
                         [](const auto& test) { return std::string(Name(test.param)); });

}  // namespace
}  // namespace tarn::worker
