// Shows in which directories a shard stores its log and its cold rows.
#include "server/shard_disks.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace tarn::server {
namespace {

namespace fs = std::filesystem;

class ShardDisksTest : public testing::Test {
 protected:
  ~ShardDisksTest() override { fs::remove_all(root_); }

  const std::string root_ = fs::path(testing::TempDir()) / ("tarn-shard-disks-" + std::to_string(getpid()));
  DiskPool pool_;
  Job job_;
};

TEST_F(ShardDisksTest, WithoutARunDirectoryThereIsNoLogAndNoTier) {
  ShardDisks disks({.shard = ShardId(5)}, &pool_, [] {});
  EXPECT_EQ(disks.log(), nullptr);
  const auto none = disks.OpenTier(job_);
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, nullptr) << "the job has no budget";
  job_.storage.memory = std::size_t{1} << 20;
  const auto homeless = disks.OpenTier(job_);
  ASSERT_FALSE(homeless);
  EXPECT_EQ(homeless.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(ShardDisksTest, TheTierIsInTheRunDirectoryOrTheJobsDirectory) {
  ShardDisks disks({.shard = ShardId(5), .shards = 2, .run_dir = root_}, &pool_, [] {});
  EXPECT_NE(disks.log(), nullptr);
  job_.storage.memory = std::size_t{1} << 20;
  for (const std::string& wanted : {std::string(), root_ + "/elsewhere"}) {
    job_.storage.tier_dir = wanted;
    const auto store = disks.OpenTier(job_);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_EQ((*store)->where(), (wanted.empty() ? root_ + "/tier" : wanted) + "/shard-5");
  }
}

}  // namespace
}  // namespace tarn::server
