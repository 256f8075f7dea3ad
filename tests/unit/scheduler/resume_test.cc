// Shows that a job goes on from a checkpoint of the same job only, given as its directory or its run's.
#include "scheduler/resume.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace tarn::scheduler {
namespace {

namespace fs = std::filesystem;

TEST(Resume, ARunOrACheckpointNamesACheckpoint) {
  const fs::path root = fs::path(testing::TempDir()) / "tarn_resume";
  fs::remove_all(root);
  const std::string directory = (root / "checkpoints/ckpt-3").string();
  fs::create_directories(directory);
  EXPECT_FALSE(ResolveCheckpoint(root.string()));
  ASSERT_TRUE(WriteManifest(directory, Manifest{}));
  EXPECT_EQ(ResolveCheckpoint(root.string()).value(), directory);
  EXPECT_EQ(ResolveCheckpoint(directory).value(), directory);
  fs::remove_all(root);
}

TEST(Resume, AnotherJobIsRefusedByItsSection) {
  Job job;
  job.data.train = "train.tsv";
  job.data.dir = "/data";
  Manifest manifest;
  manifest.job_text = ToToml(job);
  EXPECT_TRUE(CheckSameJob(job, manifest, "ckpt-1"));

  Job bigger = job;  // what may differ
  bigger.fleet.workers = 7;
  bigger.fleet.shards = 3;
  bigger.consistency.mode = ConsistencyMode::kAsp;
  bigger.train.epochs = 9;
  bigger.data.dir = "/elsewhere";
  bigger.optimizer.linear.learning_rate = 0.5f;
  EXPECT_TRUE(CheckSameJob(bigger, manifest, "ckpt-1"));

  Job other = job;
  other.model.embedding_dim = 99;
  auto refused = CheckSameJob(other, manifest, "ckpt-1");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("[model] embedding_dim is 99 in the job, but 8"), std::string::npos)
      << refused.error().message;
  other = job;
  other.data.train = "other.tsv";
  EXPECT_FALSE(CheckSameJob(other, manifest, "ckpt-1"));
  other = job;
  other.optimizer.dense.kind = OptimizerKind::kFtrl;
  EXPECT_FALSE(CheckSameJob(other, manifest, "ckpt-1"));
}

}  // namespace
}  // namespace tarn::scheduler
