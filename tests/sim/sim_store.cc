#include "tests/sim/sim_store.h"

#include <fmt/format.h>

#include <utility>

#include "core/job.h"
#include "server/row_loader.h"

namespace tarn::sim {
namespace {

constexpr TimeUs kFastUs = 50'000;
constexpr TimeUs kSlowUs = 3'000'000;
// Of a part that fails before its end.
constexpr std::uint64_t kChunksBeforeFailure = 8;
// Chance of a part that is given up to have failed before; nobody may mind.
constexpr double kFailsGivenUp = 0.6;

}  // namespace

Status SimSchedulerStore::WriteManifest(const std::string& directory, const Manifest& manifest) {
  if (rng_.Chance(fail_)) {
    ++disk_->failed;
    return Fail(ErrorCode::kIo, directory + "/MANIFEST: No space left on device");
  }
  if (!IsThere(directory, manifest))
    oracle_->Fail(fmt::format("{}: a manifest was written, but the files of its shards are not there", directory));
  else
    CheckRestored(directory, manifest);
  disk_->manifests[directory] = manifest;
  written_(directory, manifest);
  return {};
}

// Every file of every generation, each with the rows that its shard had written.
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

// What a chain holds all together is what the shards had at their cuts, to the bit.
void SimSchedulerStore::CheckRestored(const std::string& directory, const Manifest& manifest) {
  std::uint64_t expected = 0;
  for (const auto& [shard, hash] : disk_->cut_hashes[directory]) expected += hash;
  const auto restored = Restore(*disk_, directory, manifest);
  if (!restored)
    oracle_->Fail(fmt::format("{}: cannot be restored: {}", directory, restored.error().message));
  else if ((*restored)->StateHash() != expected || manifest.state_hash.value_or(expected) != expected)
    oracle_->Fail(fmt::format("{}: {} generations restored have other rows than the shards had at the cut", directory,
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

void SimSchedulerStore::RemoveCheckpoint(const std::string& directory) {
  if (!stopping_ && disk_->writing.contains(directory))
    oracle_->Fail(fmt::format("{}: removed while a shard was writing into it", directory));
  disk_->manifests.erase(directory);
  disk_->files.Remove(directory);
  std::erase_if(disk_->blobs, [&](const auto& blob) { return blob.first.starts_with(directory + "/"); });
  disk_->removed.insert(directory);
}

void SimShardStore::Begin(server::Snapshot head, std::string directory) {
  const std::uint64_t now_hash = hooks_.state_hash();  // may find that rows on disk cannot be read
  disk_->writing.insert(directory);
  id_ = head.id;
  directory_ = directory;
  refused_ = false;  // a first slice comes unasked
  chunks_left_.reset();
  if (rng_.Chance(options_.fail)) chunks_left_ = rng_.Below(kChunksBeforeFailure);
  disk_->cut_hashes[directory][options_.shard] = now_hash;
  auto written = [this, state_hash = now_hash](CheckpointPart part) {
    CheckRows(part, state_hash);
    hooks_.written(std::move(part));
  };
  open_ = std::make_shared<server::MemoryCheckpointStore>(&disk_->files, options_.shard, std::move(written));
  const std::string base = head.base.value != 0 ? head.base_directory : "";
  open_->Begin(std::move(head), std::move(directory));
  if (!base.empty() && (rng_.Chance(options_.lose_base) || disk_->lossy.contains(base))) LoseBase(base);
}

// The rows that came in slices are those of the moment of the cut.
void SimShardStore::CheckRows(const CheckpointPart& part, std::uint64_t state_hash) {
  if (part.code == ErrorCode::kOk && part.whole_hash.value_or(state_hash) != state_hash)
    oracle_->Fail(fmt::format("shard {}: checkpoint {} has other rows than the shard had at its cut",
                              options_.shard.value, part.id.value));
}

void SimShardStore::Put(server::CutRows chunk) {
  if (refused_) oracle_->Fail(fmt::format("{}: a slice came without room for it", directory_));
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

void SimShardStore::FailEarly() { Fail(Failed(), 1); }

// Somebody has removed a file of the base, for good.
void SimShardStore::LoseBase(const std::string& base) {
  disk_->lossy.insert(base);
  CheckpointPart part = Failed();
  part.code = ErrorCode::kNotFound;
  Fail(std::move(part), 0);
}

// The shard hears of it some time later, and sends slices until then.
void SimShardStore::Fail(CheckpointPart part, std::uint64_t counts) {
  open_.reset();
  wanted_ = std::make_shared<bool>(true);
  hooks_.later(Duration(), [this, part = std::move(part), counts, directory = directory_, wanted = wanted_] {
    disk_->writing.erase(disk_->writing.find(directory));
    disk_->failed += *wanted ? counts : 0;
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

// The part is durable, has failed or is given up some time later.
void SimShardStore::End(bool abandoned) {
  const TimeUs delay = Duration();
  const bool fails = rng_.Chance(abandoned ? kFailsGivenUp : options_.fail);
  auto end = [this, store = std::move(open_), part = Failed(), directory = directory_, abandoned, fails,
              whole_hash = whole_hash_] {
    disk_->writing.erase(disk_->writing.find(directory));
    if (fails) {
      disk_->failed += abandoned ? 0 : 1;
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
