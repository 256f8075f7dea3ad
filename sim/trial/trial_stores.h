// The disks of a trial: its checkpoints, in memory. The hash of the parameters is computed from them, and another trial
// may continue from them. Writes succeed and take no time; their reports are separate steps, which `later` runs. Not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/codec/manifest.h"
#include "scheduler/state/store.h"
#include "server/checkpoint/blob_store.h"
#include "sim/disks/memory_checkpoint_store.h"

namespace tarn::sim {

using Later = std::function<void(std::function<void()>)>;

// All checkpoints of a trial.
struct TrialFiles {
  server::MemoryCheckpointFiles rows;
  std::map<std::string, Manifest> manifests;                                   // by directory
  std::map<std::pair<std::string, WorkerRank>, std::vector<std::byte>> blobs;  // by directory: the state of workers
};

class TrialSchedulerStore final : public scheduler::SchedulerStore {
 public:
  using Written = std::function<void(const scheduler::StoreWritten&)>;
  TrialSchedulerStore(TrialFiles* files, Later later, Written written)
      : files_(files), later_(std::move(later)), written_(std::move(written)) {}

  void WriteManifest(CheckpointId id, const std::string& directory, const Manifest& manifest) override {
    files_->manifests[directory] = manifest;
    later_([this, id] { written_({scheduler::StoreWritten::What::kManifest, id.value, {}}); });
  }
  void RemoveCheckpoint(const std::string& directory) override {
    files_->rows.Remove(directory);
    files_->manifests.erase(directory);
    std::erase_if(files_->blobs, [&](const auto& blob) { return blob.first.first == directory; });
  }

 private:
  TrialFiles* files_;
  Later later_;
  Written written_;
};

// The state of workers.
class TrialBlobStore final : public server::BlobStore {
 public:
  using Written = std::function<void(const server::BlobWritten&)>;
  TrialBlobStore(TrialFiles* files, Later later, Written written)
      : files_(files), later_(std::move(later)), written_(std::move(written)) {}

  void Write(server::BlobWrite write) override {
    std::vector<std::byte>& blob = files_->blobs[{write.directory, write.rank}];
    if (write.offset == 0) blob.clear();
    blob.insert(blob.end(), write.bytes.data(), write.bytes.data() + write.bytes.size());
    server::BlobWritten report{write.checkpoint, write.worker, write.offset + write.bytes.size(), {}};
    if (report.received == write.total)
      report.file = {.name = server::BlobFileName(write.checkpoint, write.rank, write.worker), .bytes = write.total};
    later_([this, report] { written_(report); });
  }
  void Abandon(CheckpointId checkpoint, const std::string&, Incarnation worker, WorkerRank) override {
    later_([this, checkpoint, worker] {
      written_({checkpoint, worker, 0, {}, ErrorCode::kCancelled, "the checkpoint was given up"});
    });
  }
  Expected<server::BlobSlice> Read(const std::string& directory, WorkerRank rank, std::uint64_t offset,
                                   std::size_t bytes_max) override {
    const auto found = files_->blobs.find({directory, rank});
    if (found == files_->blobs.end())
      return Fail(ErrorCode::kNotFound, directory + ": no state of worker " + std::to_string(rank.value));
    const std::vector<std::byte>& blob = found->second;
    const std::uint64_t begin = std::min<std::uint64_t>(offset, blob.size());
    return server::BlobSlice{blob.size(),
                             Buffer::Copy(blob.data() + begin, std::min<std::size_t>(bytes_max, blob.size() - begin))};
  }

 private:
  TrialFiles* files_;
  Later later_;
  Written written_;
};

}  // namespace tarn::sim
