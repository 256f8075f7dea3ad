// Shows that a job resumes only from a checkpoint of the same job, given as its directory or its run's; and that a run
// that resumes from its logs uses its own checkpoint, even if its folder was moved.
#include "scheduler/state/resume.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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
  EXPECT_EQ(ResolveCheckpoint(directory + "/").value(), directory);
  EXPECT_EQ(ResolveCheckpoint(directory + "/.").value(), directory);
  fs::remove_all(root);
}

TEST(Resume, TheBestCheckpointOfAMovedRunIsFound) {
  const fs::path root = fs::path(testing::TempDir()) / "tarn_resume_moved";
  fs::remove_all(root);
  const fs::path old = root / "old/checkpoints", moved = root / "moved/checkpoints";
  Manifest manifest;
  manifest.id = CheckpointId(3);
  manifest.generations = {{CheckpointId(3), Clock(9), {}, {}, 0}};
  manifest.best_checkpoint = (old / "ckpt-2").string();
  for (const char* name : {"ckpt-2", "ckpt-3"}) {
    fs::create_directories(old / name);
    ASSERT_TRUE(WriteManifest((old / name).string(), manifest));
  }
  EXPECT_EQ(ReadMovedManifest((old / "ckpt-3").string()).value().best_checkpoint, (old / "ckpt-2").string());
  fs::rename(root / "old", root / "moved");
  fs::create_directories(old / "ckpt-2");  // a later run in the old place has one with the same number
  ASSERT_TRUE(WriteManifest((old / "ckpt-2").string(), Manifest{}));
  EXPECT_EQ(ReadMovedManifest((moved / "ckpt-3").string()).value().best_checkpoint, (moved / "ckpt-2").string());
  fs::remove_all(moved / "ckpt-2");
  EXPECT_EQ(ReadMovedManifest((moved / "ckpt-3").string()).value().best_checkpoint, (old / "ckpt-2").string());
  fs::remove_all(root);
}

TEST(Resume, LogsWithoutTheirStateAreRefused) {
  const fs::path root = fs::path(testing::TempDir()) / "tarn_resume_log";
  const auto put = [&](const std::string& name) { std::ofstream((root / name).string()) << "x"; };
  fs::remove_all(root);
  fs::create_directories(root / "log/shard-1");
  put("log/shard-1/LOCK");
  EXPECT_TRUE(CheckLogsHaveState(root.string()));
  put("log/shard-1/segment-0000000001.log");
  const Status lost = CheckLogsHaveState(root.string());
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(lost.error().message.starts_with((root / kStateName).string() + ": not found")) << lost.error().message;
  const std::string checkpoint = (root / "checkpoints/ckpt-3").string();
  fs::create_directories(checkpoint);
  ASSERT_TRUE(WriteManifest(checkpoint, Manifest{}));
  EXPECT_NE(CheckLogsHaveState(root.string()).error().message.find("--resume " + checkpoint), std::string::npos);
  EXPECT_TRUE(CheckLogsHaveState(checkpoint)) << "who names a checkpoint means it";
  put(kOverName);
  EXPECT_TRUE(CheckLogsHaveState(root.string()));
  fs::remove(root / kOverName);
  put(kStateName);
  EXPECT_TRUE(CheckLogsHaveState(root.string()));
  fs::remove_all(root);
}

TEST(Resume, CheckpointsOfAnotherRunAreNotAdopted) {
  const fs::path root = fs::path(testing::TempDir()) / "tarn_resume_ours";
  fs::remove_all(root);
  fs::create_directories(root / "run/checkpoints/ckpt-3");
  fs::create_directories(root / "other/checkpoints/ckpt-4");
  const std::string run = (root / "run").string(), own = run + "/checkpoints/ckpt-3";
  EXPECT_TRUE(CheckCheckpointsAreOurs(run, "")) << "it is not whole: nobody can go on from it";
  ASSERT_TRUE(WriteManifest(own, Manifest{}));
  for (const std::string& resumed : {std::string(), (root / "other/checkpoints/ckpt-4").string()}) {
    const Status refused = CheckCheckpointsAreOurs(run, resumed);
    ASSERT_FALSE(refused) << resumed;
    EXPECT_EQ(refused.error().code, ErrorCode::kAlreadyExists);
    EXPECT_TRUE(refused.error().message.starts_with(own + ": ")) << refused.error().message;
    EXPECT_NE(refused.error().message.find("--resume " + run), std::string::npos);
  }
  EXPECT_TRUE(CheckCheckpointsAreOurs(run, own));
  EXPECT_TRUE(CheckCheckpointsAreOurs(run, (root / "other/../run/checkpoints/ckpt-3").string()));
  EXPECT_TRUE(CheckCheckpointsAreOurs((root / "new").string(), own));
  fs::remove_all(root);
}

TEST(Resume, TheJobMustContainAHalfTrainedEpoch) {
  Job job;
  Manifest manifest;
  manifest.data.epoch = 1;
  manifest.data.trained = {0, 17};
  manifest.epochs.resize(1);
  job.train.epochs = 1;
  const Status refused = CheckEpochs(job, manifest, "ckpt-3");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "resume: [train] epochs is 1, but the checkpoint ckpt-3 was cut in epoch 2: expected at least 2");
  job.train.epochs = 2;
  EXPECT_TRUE(CheckEpochs(job, manifest, "ckpt-3"));
  // None of the second epoch is trained yet, or all of it.
  job.train.epochs = 1;
  manifest.data.trained = {0, 0};
  EXPECT_TRUE(CheckEpochs(job, manifest, "ckpt-3"));
  manifest.data.trained = {100, 17};
  manifest.epochs.resize(2);
  EXPECT_TRUE(CheckEpochs(job, manifest, "ckpt-3"));
}

TEST(Resume, TheErrorForAnotherJobNamesTheSection) {
  Job job;
  job.data.train = "train.tsv";
  job.data.dir = "/data";
  Manifest manifest;
  manifest.job_text = ToToml(job);
  EXPECT_TRUE(CheckSameJob(job, manifest, "ckpt-1"));

  Job bigger = job;  // settings that may differ
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
  other.optimizer.dense.kind = "ftrl";
  EXPECT_FALSE(CheckSameJob(other, manifest, "ckpt-1"));
}

// Rule G5 in a folder that was moved. Write makes checkpoint 4 of a run, whose rows depend on `sum`.
class TakeUpTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void TearDown() override { fs::remove_all(root_); }

  std::string Write(const std::string& run, std::uint32_t sum) {
    const std::string directory = (root_ / run / "checkpoints/ckpt-4").string();
    fs::create_directories(directory);
    std::ofstream(directory + "/4-shard-0.sst") << "rows";
    Manifest manifest;
    manifest.id = CheckpointId(4);
    manifest.generations = {{manifest.id, Clock(9), {{.name = "4-shard-0.sst", .bytes = 4, .crc32c = sum}}, {}, 0}};
    EXPECT_TRUE(WriteManifest(directory, manifest));
    return directory;
  }
  SchedulerState StateOf(const std::string& directory) {
    SchedulerState state;
    state.whole = CheckpointId(4);
    state.whole_directory = state.progress.best_checkpoint = directory;
    state.whole_files = FilesHash(ReadManifest(directory).value());
    state.kept = {(fs::path(directory).parent_path() / "ckpt-3").string(), directory};
    state.outdated = {(fs::path(directory).parent_path() / "ckpt-2").string()};
    state.pending_directory = (fs::path(directory).parent_path() / "ckpt-5").string();
    return state;
  }
  std::string Path(const std::string& name) const { return (root_ / name).string(); }

  fs::path root_ = fs::path(testing::TempDir()) / "tarn_take_up";
};

TEST_F(TakeUpTest, AMovedFolderUsesTheCheckpointsInIt) {
  SchedulerState state = StateOf(Write("x", 1));
  fs::rename(root_ / "x", root_ / "moved");
  Write("x", 2);  // the old path now holds another job, which is ignored
  const auto whole = TakeUp(Path("moved"), &state);
  ASSERT_TRUE(whole.has_value()) << whole.error().message;
  EXPECT_EQ((*whole)->id, CheckpointId(4));
  EXPECT_EQ(state.whole_directory, Path("moved/checkpoints/ckpt-4"));
  EXPECT_EQ(state.progress.best_checkpoint, Path("moved/checkpoints/ckpt-4"));
  EXPECT_EQ(state.kept, (std::vector{Path("moved/checkpoints/ckpt-3"), Path("moved/checkpoints/ckpt-4")}));
  EXPECT_EQ(state.outdated, std::vector{Path("moved/checkpoints/ckpt-2")});
  EXPECT_EQ(state.pending_directory, Path("moved/checkpoints/ckpt-5"));
}

TEST_F(TakeUpTest, TheErrorForAnotherRunsCheckpointNamesIt) {
  SchedulerState state = StateOf(Write("x", 1));
  fs::remove_all(root_ / "x/checkpoints/ckpt-4");
  fs::rename(Write("y", 2), Path("x/checkpoints/ckpt-4"));
  const auto whole = TakeUp(Path("x"), &state);
  ASSERT_FALSE(whole.has_value());
  EXPECT_EQ(whole.error().code, ErrorCode::kCorrupt);
  EXPECT_TRUE(whole.error().message.starts_with(Path("x/checkpoints/ckpt-4/MANIFEST: "))) << whole.error().message;
}

TEST_F(TakeUpTest, ACheckpointOfAnotherFolderStaysThere) {
  SchedulerState state = StateOf(Write("old", 1));
  state.kept.clear();
  ASSERT_TRUE(TakeUp(Path("new"), &state).has_value());
  EXPECT_EQ(state.whole_directory, Path("old/checkpoints/ckpt-4"));
  Write("old", 2);
  EXPECT_FALSE(TakeUp(Path("new"), &state).has_value());
}

}  // namespace
}  // namespace tarn::scheduler
