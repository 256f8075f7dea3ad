#include "tests/sim/sim_store.h"

#include <fmt/format.h>

#include <memory>

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

void SimShardStore::Write(server::Snapshot snapshot, std::string directory) {
  disk_->writing.insert(directory);
  const TimeUs most = rng_.Chance(options_.slow) ? kSlowUs : kFastUs;
  const TimeUs delay = 1'000 + TimeUs(rng_.Below(std::uint64_t(most)));
  later_(delay, [this, shared = std::make_shared<server::Snapshot>(std::move(snapshot)), directory] {
    Finish(*shared, directory);
  });
}

void SimShardStore::Finish(const server::Snapshot& snapshot, const std::string& directory) {
  disk_->writing.erase(disk_->writing.find(directory));
  if (rng_.Chance(options_.fail)) {
    ++disk_->failed;
    CheckpointPart part;
    part.id = snapshot.id;
    part.code = ErrorCode::kIo;
    part.message = fmt::format("{}/shard-{}.sst: No space left on device", directory, options_.shard.value);
    written_(part);
    return;
  }
  server::MemoryCheckpointStore store(&disk_->files, options_.shard, written_);
  store.Write(snapshot, directory);
}

Status SimShardStore::Load(const std::string& directory, server::RowSink& sink) {
  server::MemoryCheckpointStore store(&disk_->files, options_.shard, {});
  return store.Load(directory, sink);
}

}  // namespace tarn::sim
