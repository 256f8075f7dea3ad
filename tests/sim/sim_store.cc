#include "tests/sim/sim_store.h"

#include <fmt/format.h>

#include <utility>

namespace tarn::sim {
namespace {

constexpr TimeUs kFastUs = 50'000;
constexpr TimeUs kSlowUs = 3'000'000;

}  // namespace

Status SimSchedulerStore::WriteManifest(const std::string& directory, const Manifest& manifest) {
  if (rng_.Chance(fail_)) {
    ++disk_->failed;
    return Fail(ErrorCode::kIo, directory + "/MANIFEST: No space left on device");
  }
  const auto* shards = disk_->files.Find(directory);
  std::uint64_t hash = 0;
  if (shards != nullptr)
    for (const auto& [shard, snapshot] : *shards) hash += server::StateHash(snapshot.tables);
  if (shards == nullptr || shards->size() != manifest.files.size() || hash != manifest.state_hash)
    oracle_->Fail(fmt::format("{}: a manifest was written, but the files of its shards are not there", directory));
  disk_->manifests[directory] = manifest;
  return {};
}

void SimSchedulerStore::RemoveCheckpoint(const std::string& directory) {
  if (!stopping_ && disk_->writing.contains(directory))
    oracle_->Fail(fmt::format("{}: removed while a shard was writing into it", directory));
  disk_->manifests.erase(directory);
  disk_->files.Remove(directory);
  disk_->removed.insert(directory);
}

void SimShardStore::Begin(server::Snapshot head, std::string directory) {
  disk_->writing.insert(directory);
  id_ = head.id;
  directory_ = directory;
  open_ = std::make_shared<server::MemoryCheckpointStore>(&disk_->files, options_.shard, written_);
  open_->Begin(std::move(head), std::move(directory));
}

// The part is durable, has failed or is given up some time later.
void SimShardStore::End(bool abandoned) {
  const TimeUs most = rng_.Chance(options_.slow) ? kSlowUs : kFastUs;
  const bool fails = !abandoned && rng_.Chance(options_.fail);
  auto end = [this, store = std::move(open_), id = id_, directory = directory_, abandoned, fails] {
    disk_->writing.erase(disk_->writing.find(directory));
    if (fails) {
      ++disk_->failed;
      return written_({.id = id, .code = ErrorCode::kIo, .message = directory + ": No space left on device"});
    }
    abandoned ? store->Abandon() : store->Finish();
  };
  later_(1'000 + TimeUs(rng_.Below(std::uint64_t(most))), std::move(end));
}

Status SimShardStore::Load(const std::string& directory, server::RowSink& sink) {
  server::MemoryCheckpointStore store(&disk_->files, options_.shard, {});
  return store.Load(directory, sink);
}

}  // namespace tarn::sim
