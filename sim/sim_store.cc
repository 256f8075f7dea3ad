#include "sim/sim_store.h"

#include <fmt/format.h>

#include <utility>

#include "core/job/job.h"
#include "server/checkpoint/row_loader.h"

namespace tarn::sim {
namespace {

constexpr TimeUs kFastUs = 50'000;
constexpr TimeUs kSlowUs = 3'000'000;
// A part that fails early fails before this number of chunks.
constexpr std::uint64_t kChunksBeforeFailure = 8;
// Probability that an abandoned part reports a failure instead; this must have no other effect.
constexpr double kAbandonedFails = 0.6;

}  // namespace

TimeUs SimSchedulerStore::Duration(double slow, SplitMix* rng) {
  if (hooks_.now() < options_.until_us && rng->Chance(options_.stall)) {
    ++stalls_;
    return options_.stall_us + TimeUs(rng->Below(std::uint64_t(options_.stall_us)));
  }
  const TimeUs most = rng->Chance(slow) ? kSlowUs : options_.sync_max_us;
  return 1 + TimeUs(rng->Below(std::uint64_t(most)));
}

// After a failure the file may exist nevertheless, because only the sync of its directory may have failed.
void SimSchedulerStore::WriteManifest(CheckpointId id, const std::string& directory, const Manifest& manifest) {
  using scheduler::StoreWritten;
  if (manifest_) oracle_->Fail(fmt::format("{}: two manifests are written at once", directory));
  manifest_.emplace(directory, manifest);
  if (!IsThere(directory, manifest))
    oracle_->Fail(fmt::format("{}: a manifest was written before the files of its shards", directory));
  else
    CheckRestored(directory, manifest);
  const bool fails = rng_.Chance(options_.fail_manifest);
  hooks_.later(Duration(options_.slow_manifest, &time_rng_), [this, id, fails] {
    const auto [where, what] = *std::exchange(manifest_, std::nullopt);
    StoreWritten end{StoreWritten::What::kManifest, id.value, {}};
    if (fails) {
      ++disk_->failed_writes;
      end.status = Fail(ErrorCode::kIo, where + "/MANIFEST: No space left on device");
    }
    if (!fails || rng_.Chance(0.3)) Put(where, what);
    if (!fails && !disk_->removed.contains(where)) hooks_.whole(where, what);
    hooks_.written(end);
  });
}

// Writes nothing into a removed directory: the scheduler may abandon the checkpoint during the write, and a real store
// then removes the directory after the write.
void SimSchedulerStore::Put(const std::string& directory, const Manifest& manifest) {
  if (!disk_->removed.contains(directory)) disk_->manifests[directory] = manifest;
}

void SimSchedulerStore::WriteState(std::uint64_t number, const scheduler::SchedulerState& state) {
  using scheduler::StoreWritten;
  if (state_) oracle_->Fail("two states are written at once");
  state_ = scheduler::EncodeState(state);
  const bool fails = failures_ + 1 < scheduler::StateGate::kTriesMax && rng_.Chance(options_.fail_state);
  failures_ = fails ? failures_ + 1 : 0;
  if (fails) ++failed_states_;
  hooks_.later(Duration(0, &time_rng_), [this, number, fails] {
    SimFile& file = disk_->state;
    std::string bytes = *std::exchange(state_, std::nullopt);
    StoreWritten end{StoreWritten::What::kState, number, {}};
    if (fails) {
      end.status = Fail(ErrorCode::kIo, "scheduler.state: Input/output error");
      if (rng_.Chance(0.5)) file.bytes = std::move(bytes);
    } else {
      file.bytes = file.durable = std::move(bytes);
    }
    hooks_.written(end);
  });
}

void SimSchedulerStore::WriteAddresses(std::uint64_t number, const std::vector<scheduler::ProcessAddress>& addresses) {
  using scheduler::StoreWritten;
  if (addresses_) oracle_->Fail("two lists of addresses are written at once");
  addresses_ = addresses.size();
  const bool fails = address_rng_.Chance(options_.fail_addresses);
  hooks_.later(Duration(options_.slow_manifest, &address_rng_), [this, number, fails] {
    listed_ = *std::exchange(addresses_, std::nullopt);
    StoreWritten end{StoreWritten::What::kAddresses, number, {}};
    if (fails) end.status = Fail(ErrorCode::kIo, "addresses.json: No space left on device");
    hooks_.written(end);
  });
}

void SimSchedulerStore::EndProcess() {
  addresses_.reset();
  if (auto state = std::exchange(state_, std::nullopt); state && rng_.Chance(0.5)) disk_->state.bytes = *state;
  if (auto manifest = std::exchange(manifest_, std::nullopt); manifest && rng_.Chance(0.5))
    Put(manifest->first, manifest->second);
  failures_ = 0;
}

void SimSchedulerStore::LosePower() {
  SimFile& file = disk_->state;
  if (rng_.Chance(0.7)) file.bytes = file.durable;
  file.durable = file.bytes;
}

// Whether every file of every generation has the rows that its shard wrote.
bool SimSchedulerStore::IsThere(const std::string& directory, const Manifest& manifest) const {
  const auto* generations = disk_->files.Find(directory);
  if (generations == nullptr || generations->size() != manifest.generations.size()) return false;
  for (const Generation& generation : manifest.generations) {
    const auto parts = generations->find(generation.id);
    if (parts == generations->end() || parts->second.size() != generation.files.size()) return false;
    std::uint64_t hash = 0;
    for (const auto& [shard, snapshot] : parts->second) hash += server::StateHash(snapshot->tables);
    if (hash != generation.state_hash) return false;
  }
  return true;
}

// All generations together must equal the rows of the shards at their cuts, bit by bit.
void SimSchedulerStore::CheckRestored(const std::string& directory, const Manifest& manifest) {
  std::uint64_t expected = 0;
  for (const auto& [shard, hash] : disk_->cut_hashes[directory]) expected += hash;
  if (disk_->unreadable.contains(directory)) return;
  const auto restored = Restore(*disk_, directory, manifest);
  if (!restored)
    oracle_->Fail(fmt::format("{}: cannot be restored: {}", directory, restored.error().message));
  else if ((*restored)->StateHash() != expected || manifest.state_hash.value_or(expected) != expected)
    oracle_->Fail(fmt::format("{}: {} restored generations differ from the rows of the shards at the cut", directory,
                              manifest.generations.size()));
}

Expected<std::unique_ptr<server::Store>> Restore(const SimDisk& disk, const std::string& directory,
                                                 const Manifest& manifest) {
  const auto job = ParseJob(manifest.job_text, directory, "/");
  if (!job) return std::unexpected(job.error());
  server::StoreOptions options{.job_seed = job->job.seed, .partition_bits = manifest.partition_bits, .owned = {}};
  for (std::uint32_t p = 0; p < 1u << manifest.partition_bits; ++p) options.owned.push_back(PartitionId(p));
  auto rows = std::make_unique<server::Store>(std::move(options));
  for (const TableSpec& table : manifest.tables) TARN_RETURN_IF_ERROR(rows->AddTable(table));
  server::MemoryCheckpointFiles files = disk.files;
  server::MemoryCheckpointStore store(&files, ShardId(0), {});
  server::RowLoader loader(rows.get());
  TARN_RETURN_IF_ERROR(store.Load(directory, loader));
  return rows;
}

void LoseUnsynced(SimDisk* disk, ShardId shard, const std::function<std::uint64_t(std::uint64_t)>& dice) {
  for (const auto& [directory, id] : disk->unsynced[shard])
    if (dice(4) != 0) disk->files.RemovePart(directory, id, shard);
  disk->unsynced.erase(shard);
  std::erase_if(disk->unsynced_blobs, [&](const auto& blob) {
    if (blob.second != shard) return false;
    if (dice(4) != 0) disk->blobs.erase(blob.first);
    return true;
  });
}

std::string MissingOf(const SimDisk& disk) {
  for (const auto& [directory, manifest] : disk.manifests) {
    const auto* generations = disk.files.Find(directory);
    for (const Generation& generation : manifest.generations) {
      const auto parts = generations == nullptr ? decltype(generations->end()){} : generations->find(generation.id);
      if (generations == nullptr || parts == generations->end() || parts->second.size() != generation.files.size())
        return fmt::format("{}: files of checkpoint {} were lost with the power", directory, generation.id.value);
    }
    for (const WorkerBlob& blob : manifest.blobs)
      if (!disk.blobs.contains(directory + "/" + blob.file.name))
        return fmt::format("{}/{}: lost with the power", directory, blob.file.name);
  }
  return {};
}

void SimSchedulerStore::RemoveCheckpoint(const std::string& directory) {
  if (!stopping_ && disk_->writing.contains(directory))
    oracle_->Fail(fmt::format("{}: removed while a shard was writing to it", directory));
  disk_->manifests.erase(directory);
  disk_->files.Remove(directory);
  std::erase_if(disk_->blobs, [&](const auto& blob) { return blob.first.starts_with(directory + "/"); });
  disk_->removed.insert(directory);
}

void SimShardStore::Begin(server::Snapshot head, std::string directory) {
  const Expected<std::uint64_t> now_hash = hooks_.state_hash();
  disk_->writing.insert(directory);
  id_ = head.id;
  directory_ = directory;
  refused_ = false;  // the first chunk may be written without a call of HasRoom
  chunks_left_.reset();
  if (rng_.Chance(options_.fail)) chunks_left_ = rng_.Below(kChunksBeforeFailure);
  if (now_hash)
    disk_->cut_hashes[directory][options_.shard] = *now_hash;
  else
    disk_->unreadable.insert(directory);
  auto written = [this, state_hash = now_hash, written_to = directory](CheckpointPart part) {
    CheckRows(part, state_hash);
    SyncPart(std::move(part), written_to);
  };
  open_ = std::make_shared<server::MemoryCheckpointStore>(&disk_->files, options_.shard, std::move(written));
  const std::string base = head.base.value != 0 ? head.base_directory : "";
  open_->Begin(std::move(head), std::move(directory));
  if (!base.empty() && (rng_.Chance(options_.lose_base) || disk_->lossy.contains(base))) LoseBase(base);
}

// The rows of all slices must be those at the cut.
void SimShardStore::CheckRows(const CheckpointPart& part, const Expected<std::uint64_t>& state_hash) {
  if (part.code == ErrorCode::kOk && state_hash && part.whole_hash.value_or(*state_hash) != *state_hash)
    oracle_->Fail(fmt::format("shard {}: checkpoint {} differs from the rows of the shard at the cut",
                              options_.shard.value, part.id.value));
}

void SimShardStore::Put(server::CutRows chunk) {
  if (refused_) oracle_->Fail(fmt::format("{}: a slice was written without room for it", directory_));
  if (!full_ && rng_.Chance(options_.full)) FillUp();
  if (!open_) return;
  if (chunks_left_ && (*chunks_left_)-- == 0) return FailEarly();
  open_->Put(std::move(chunk));
}

bool SimShardStore::HasRoom() {
  refused_ = full_;
  return !full_;
}

void SimShardStore::FillUp() {
  full_ = true;
  hooks_.later(Duration(), [this] {
    full_ = false;
    if (std::exchange(refused_, false)) hooks_.wake();
  });
}

// A part that is written is durable, and reported, some time later.
void SimShardStore::SyncPart(CheckpointPart part, const std::string& directory) {
  if (part.code != ErrorCode::kOk) return hooks_.written(std::move(part));
  disk_->writing.insert(directory);
  disk_->unsynced[options_.shard].push_back({directory, part.id});
  hooks_.later(Duration() / 2, [this, part = std::move(part), directory] {
    disk_->writing.erase(disk_->writing.find(directory));
    std::erase(disk_->unsynced[options_.shard], std::pair(directory, part.id));
    hooks_.written(part);
  });
}

void SimShardStore::FailEarly() { Fail(Failed(), 1); }

// Simulates the permanent removal of a file of the base.
void SimShardStore::LoseBase(const std::string& base) {
  disk_->lossy.insert(base);
  CheckpointPart part = Failed();
  part.code = ErrorCode::kNotFound;
  Fail(std::move(part), 0);
}

// The report reaches the shard later, and the shard writes slices until then. `failures`: added to SimDisk::failed,
// unless the part is abandoned first.
void SimShardStore::Fail(CheckpointPart part, std::uint64_t failures) {
  open_.reset();
  wanted_ = std::make_shared<bool>(true);
  hooks_.later(Duration(), [this, part = std::move(part), failures, directory = directory_, wanted = wanted_] {
    disk_->writing.erase(disk_->writing.find(directory));
    disk_->failed_writes += *wanted ? failures : 0;
    hooks_.written(part);
  });
}

void SimShardStore::Finish(std::optional<std::uint64_t> whole_hash) {
  whole_hash_ = whole_hash;
  if (open_) End(false);
}

void SimShardStore::Abandon() {
  if (open_) return End(true);
  *wanted_ = false;
}

// Ends the part later: durable, failed or abandoned.
void SimShardStore::End(bool abandoned) {
  const TimeUs delay = Duration();
  const bool fails = rng_.Chance(abandoned ? kAbandonedFails : options_.fail);
  auto end = [this, store = std::move(open_), part = Failed(), directory = directory_, abandoned, fails,
              whole_hash = whole_hash_] {
    disk_->writing.erase(disk_->writing.find(directory));
    if (fails) {
      disk_->failed_writes += abandoned ? 0 : 1;
      return hooks_.written(part);
    }
    abandoned ? store->Abandon() : store->Finish(whole_hash);
  };
  hooks_.later(delay, std::move(end));
}

TimeUs SimShardStore::Duration() {
  const TimeUs most = rng_.Chance(options_.slow) ? kSlowUs : kFastUs;
  return 1'000 + TimeUs(rng_.Below(std::uint64_t(most)));
}

CheckpointPart SimShardStore::Failed() const {
  return {.id = id_, .code = ErrorCode::kIo, .message = directory_ + ": No space left on device"};
}

Status SimShardStore::Load(const std::string& directory, server::RowSink& sink) {
  server::MemoryCheckpointStore store(&disk_->files, options_.shard, {});
  return store.Load(directory, sink);
}

}  // namespace tarn::sim
