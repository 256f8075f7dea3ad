// Shows that a recording is read, and that errors name one that is damaged or of a run that cannot be repeated.
#include "sim/trial/recording.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "core/file.h"
#include "tests/unit/worker/data/temp_dir.h"

namespace tarn::sim {
namespace {

class RecordingTest : public ::testing::Test {
 protected:
  RecordingTest() {
    job_.fleet.workers = 2;
    std::filesystem::create_directory(folder_.path() + "/record");
    Write("shard-0", "tick 1 0 1 0\npull 0 2 1 18446744073709551615\n");
    Write("worker-0", "lease 5 2\nbegin 5 0\nbatch 5 0 0 0 8 0\nbegin 5 1\ntick 5 1\n");
    Write("worker-1", "lease 6 1\nlease 6 3\nbegin 6 0\n");
  }
  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(folder_.path() + "/record/" + name, text));
  }
  // The error of loading; empty: none.
  std::string Complaint() const {
    const auto recording = Recording::Load(job_, folder_.path());
    return recording ? "" : recording.error().message;
  }

  testing::TempDir folder_;
  Job job_;
};

TEST_F(RecordingTest, IsRead) {
  const auto recording = Recording::Load(job_, folder_.path());
  ASSERT_TRUE(recording) << recording.error().message;
  ASSERT_EQ(recording->effects.size(), 1u);
  ASSERT_EQ(recording->effects[0].size(), 2u);
  EXPECT_EQ(ToLine(recording->effects[0][1]), "pull 0 2 1 18446744073709551615");
  EXPECT_EQ(recording->leases, (std::vector{WorkerRank(1), WorkerRank(0), WorkerRank(1)}));
  EXPECT_EQ(recording->begins[0].pushed, (std::vector<std::uint64_t>{0, 1}));
  EXPECT_EQ(recording->begins[1].pushed, std::vector<std::uint64_t>{0});
}

TEST_F(RecordingTest, ADamagedRecordingIsRefused) {
  for (const char* line :
       {"tick 1 0 1", "tick 1 0 1 0 ", "tock 1 0 1 0", "tick -1 0 1 0", "tick  1 0 1 0", "tick 1 0 1 x"}) {
    Write("shard-0", std::string(line) + "\n");
    EXPECT_NE(Complaint().find("shard-0: line 1: '" + std::string(line) + "' is not an effect"), std::string::npos)
        << line;
  }
}

TEST_F(RecordingTest, AnUnhandledLeaseIsAssignedToAWorkerWithoutLaterOnes) {
  Write("worker-0", "begin 5 0\n");
  const auto recording = Recording::Load(job_, folder_.path());
  ASSERT_TRUE(recording) << recording.error().message;
  EXPECT_EQ(recording->leases, (std::vector{WorkerRank(1), WorkerRank(0), WorkerRank(1)}));
}

TEST_F(RecordingTest, LeasesMustBeComplete) {
  Write("worker-0", "lease 5 4\n");
  EXPECT_NE(Complaint().find("no worker got lease 2"), std::string::npos);
  Write("worker-0", "lease 5 3\n");
  EXPECT_NE(Complaint().find("worker-1: lease 3 was granted twice"), std::string::npos);
  Write("worker-0", "lease five\n");
  EXPECT_NE(Complaint().find("worker-0: 'lease five'"), std::string::npos);
}

TEST_F(RecordingTest, ARunThatLostAProcessIsRefused) {
  Write("worker-0", "lease 5 2\nlease 7 4\n");
  EXPECT_NE(Complaint().find("worker 0 died and was started again"), std::string::npos);
  std::filesystem::remove(folder_.path() + "/record/shard-0");
  EXPECT_NE(Complaint().find("shard-0: no such file: expected a run that tools/launch --record"), std::string::npos);
}

TEST_F(RecordingTest, ARunThatDependsOnTimeIsRefused) {
  const Job plain = job_;
  job_.train.device = "gpu";
  EXPECT_NE(Complaint().find("train.device"), std::string::npos);
  job_ = plain;
  job_.train.hot_rows.rows = 10;
  EXPECT_NE(Complaint().find("train.hot_rows"), std::string::npos);
  job_ = plain;
  job_.tables["t"].has_worker_cache = true;
  job_.tables["t"].worker_cache.push_every = 2;
  EXPECT_NE(Complaint().find("push_every"), std::string::npos);
  job_ = plain;
  job_.tables["t"].life.expire_seconds = 1;
  EXPECT_NE(Complaint().find("expire_seconds"), std::string::npos);
}

}  // namespace
}  // namespace tarn::sim
