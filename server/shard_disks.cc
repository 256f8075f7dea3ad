#include "server/shard_disks.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "server/tier/rocksdb_cold_store.h"

namespace tarn::server {
namespace {

// Rows that wait to be written to a checkpoint get 1 / kCheckpointShare of a shard's part of the budget, and rows that
// are being sorted get as much again.
constexpr std::size_t kCheckpointShare = 64, kCheckpointBytesMin = std::size_t{1} << 20;

// Maximum number of open files of a shard's tier. The tiers together get half of the process's limit; the rest is for
// connections and logs. -1: unlimited, which makes reads faster.
int TierFiles(std::uint32_t shards) {
  constexpr rlim_t kEnough = 65536;
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return -1;
  const rlim_t share = files.rlim_cur / 2 / shards;
  return share >= kEnough ? -1 : static_cast<int>(share);
}

}  // namespace

ShardDisks::ShardDisks(Options options, DiskPool* pool, std::function<void()> wake)
    : options_(std::move(options)),
      pool_(pool),
      wake_(std::move(wake)),
      checkpoints_(pool, wake_),
      blobs_(pool, wake_) {
  if (options_.run_dir.empty()) return;
  const std::string folder = fmt::format("{}/log/shard-{}", options_.run_dir, options_.shard.value);
  log_ = std::make_unique<FileShardLog>(pool, MakeFileOps(), folder, wake_);
}

Expected<std::unique_ptr<ColdStore>> ShardDisks::OpenTier(const Job& job) {
  const std::size_t budget = job.storage.memory;
  if (budget == 0) return nullptr;
  if (job.storage.tier_dir.empty() && options_.run_dir.empty())
    return Fail(ErrorCode::kInvalidArgument,
                "storage.memory needs a folder for the rows beyond it: set storage.tier_dir, or --run-dir");
  const std::string parent = job.storage.tier_dir.empty() ? options_.run_dir + "/tier" : job.storage.tier_dir;
  auto store = RocksDbColdStore::Open(pool_,
                                      {.directory = fmt::format("{}/shard-{}", parent, options_.shard.value),
                                       .open_files_max = TierFiles(options_.shards)},
                                      wake_);
  if (!store) return std::unexpected(store.error());
  checkpoints_.BoundMemory(std::max(kCheckpointBytesMin, budget / options_.shards / kCheckpointShare));
  return *std::move(store);
}

}  // namespace tarn::server
