#include "tests/sim/sim_store.h"

#include <fmt/format.h>

#include <utility>

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
  const std::uint64_t now_hash = hooks_.state_hash();  // may find that rows on disk cannot be read
  disk_->writing.insert(directory);
  id_ = head.id;
  directory_ = directory;
  refused_ = false;  // a first slice comes unasked
  chunks_left_.reset();
  if (rng_.Chance(options_.fail)) chunks_left_ = rng_.Below(kChunksBeforeFailure);
  auto written = [this, state_hash = now_hash](CheckpointPart part) {
    CheckRows(part, state_hash);
    hooks_.written(std::move(part));
  };
  open_ = std::make_shared<server::MemoryCheckpointStore>(&disk_->files, options_.shard, std::move(written));
  open_->Begin(std::move(head), std::move(directory));
}

// The rows that came in slices are those of the moment of the cut.
void SimShardStore::CheckRows(const CheckpointPart& part, std::uint64_t state_hash) {
  if (part.code == ErrorCode::kOk && part.state_hash != state_hash)
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

// The shard hears of it some time later, and sends slices until then.
void SimShardStore::FailEarly() {
  open_.reset();
  wanted_ = std::make_shared<bool>(true);
  hooks_.later(Duration(), [this, part = Failed(), directory = directory_, wanted = wanted_] {
    disk_->writing.erase(disk_->writing.find(directory));
    disk_->failed += *wanted ? 1 : 0;
    hooks_.written(part);
  });
}

void SimShardStore::Finish() {
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
  auto end = [this, store = std::move(open_), part = Failed(), directory = directory_, abandoned, fails] {
    disk_->writing.erase(disk_->writing.find(directory));
    if (fails) {
      disk_->failed += abandoned ? 0 : 1;
      return hooks_.written(part);
    }
    abandoned ? store->Abandon() : store->Finish();
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
