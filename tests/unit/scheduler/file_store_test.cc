// Shows that the files of an ended run are removed in an order that allows the next scheduler to continue after a
// crash.
#include "scheduler/file_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "core/file.h"

namespace tarn::scheduler {
namespace {

namespace fs = std::filesystem;

class FileStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "tarn-file-store-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    run_ = name;
    Put("log/shard-0/segment-0000000001.log");
    Put("checkpoints/ckpt-1/MANIFEST");
    Put("checkpoints/ckpt-2/2-shard-0.sst");
    store_.emplace(&pool_, run_.string(), (run_ / "checkpoints").string());
    store_->WriteState(1, {});
    store_->Drain();
    ASSERT_TRUE(fs::exists(run_ / kStateName));
  }
  void TearDown() override { fs::remove_all(run_); }
  void Put(const std::string& path) const {
    fs::create_directories((run_ / path).parent_path());
    std::ofstream(run_ / path) << "x";
  }

  fs::path run_;
  DiskPool pool_;
  std::optional<FileStore> store_;
};

TEST_F(FileStoreTest, LogsAreRemovedAfterTheState) {
  ASSERT_TRUE(store_->RemoveEndedState());  // the run is not over
  EXPECT_TRUE(fs::exists(run_ / kStateName));
  EXPECT_TRUE(fs::exists(run_ / "log/shard-0"));
  store_->RemoveState();
  EXPECT_TRUE(fs::exists(run_ / kStateName)) << "the summary is not there yet";
  ASSERT_TRUE(store_->RemoveEndedState());
  EXPECT_FALSE(fs::exists(run_ / kStateName));
  EXPECT_FALSE(fs::exists(run_ / kOverName));
  EXPECT_FALSE(fs::exists(run_ / "log"));
  EXPECT_TRUE(fs::exists(run_ / "checkpoints/ckpt-1"));
}

// The scheduler ended after removing the state and before removing the logs. The next one in the folder removes them.
TEST_F(FileStoreTest, TheLogsOfAnEndedRunAreRemoved) {
  Put(kOverName);
  store_->WriteState(2, {.run = 7, .owners = {ShardId(0)}, .begun = true});
  store_->Drain();
  store_->RemoveOldLogs(8);
  EXPECT_TRUE(fs::exists(run_ / "log/shard-0")) << "there is a state: the logs are its run's";
  fs::remove(run_ / kStateName);
  store_->RemoveOldLogs(8);
  EXPECT_FALSE(fs::exists(run_ / "log"));
  EXPECT_FALSE(fs::exists(run_ / kOverName));
}

// A run ended before it had begun, for example because it could not load its checkpoint. Another may start in its
// folder.
TEST_F(FileStoreTest, TheLogsOfARunThatHadNotBegunAreRemoved) {
  store_->WriteState(2, {.run = 7, .begun = false});
  store_->Drain();
  store_->RemoveOldLogs(7);
  EXPECT_TRUE(fs::exists(run_ / "log/shard-0")) << "the same run starts again";
  store_->RemoveOldLogs(8);
  EXPECT_FALSE(fs::exists(run_ / "log"));
}

TEST_F(FileStoreTest, AddressesAreWrittenAsAListAndReplaceAnEarlierOne) {
  Put(kAddressesName);
  store_->WriteAddresses(3, {{"scheduler", 0, "http://127.0.0.1:80"}, {"worker", 2, "http://[::1]:81"}});
  store_->Drain();
  const auto text = ReadFile((run_ / kAddressesName).string(), 1000);
  ASSERT_TRUE(text);
  EXPECT_EQ(nlohmann::json::parse(*text),
            nlohmann::json::parse(R"([{"role": "scheduler", "rank": 0, "http": "http://127.0.0.1:80"},
                                      {"role": "worker", "rank": 2, "http": "http://[::1]:81"}])"));
  const auto written = store_->TakeWritten();
  EXPECT_EQ(written.back().what, StoreWritten::What::kAddresses);
  EXPECT_EQ(written.back().number, 3u);
  EXPECT_TRUE(written.back().status);
  store_->RemoveAddresses();
  EXPECT_FALSE(fs::exists(run_ / kAddressesName));
  store_->RemoveAddresses();
}

TEST_F(FileStoreTest, IncompleteCheckpointsAreRemoved) {
  store_->RemovePartial();
  EXPECT_TRUE(fs::exists(run_ / "checkpoints/ckpt-1/MANIFEST"));
  EXPECT_FALSE(fs::exists(run_ / "checkpoints/ckpt-2"));
}

// A user has moved a checkpoint to another disk and left a link: only the link is removed.
TEST_F(FileStoreTest, TheTargetOfALinkIsKept) {
  fs::rename(run_ / "checkpoints/ckpt-1", run_ / "elsewhere");
  fs::create_directory_symlink(run_ / "elsewhere", run_ / "checkpoints/ckpt-1");
  store_->RemoveCheckpoint((run_ / "checkpoints/ckpt-1").string());
  store_->RemovePartial();
  EXPECT_TRUE(store_->Removing().empty());
  EXPECT_FALSE(fs::is_symlink(run_ / "checkpoints/ckpt-1"));
  EXPECT_TRUE(fs::exists(run_ / "elsewhere/MANIFEST"));
}

}  // namespace
}  // namespace tarn::scheduler
