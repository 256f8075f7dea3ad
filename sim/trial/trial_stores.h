// The disks of a trial: its checkpoints in memory, from which the hash of the parameters comes. Writes succeed and take
// no time; their reports are steps of their own, which `later` runs. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "core/codec/manifest.h"
#include "scheduler/state/store.h"
#include "server/checkpoint/blob_store.h"
#include "sim/disks/memory_checkpoint_store.h"

namespace tarn::sim {

using Later = std::function<void(std::function<void()>)>;

class TrialSchedulerStore final : public scheduler::SchedulerStore {
 public:
  using Written = std::function<void(const scheduler::StoreWritten&)>;
  TrialSchedulerStore(server::MemoryCheckpointFiles* files, Later later, Written written)
      : files_(files), later_(std::move(later)), written_(std::move(written)) {}

  void WriteManifest(CheckpointId id, const std::string&, const Manifest&) override {
    later_([this, id] { written_({scheduler::StoreWritten::What::kManifest, id.value, {}}); });
  }
  void RemoveCheckpoint(const std::string& directory) override { files_->Remove(directory); }

 private:
  server::MemoryCheckpointFiles* files_;
  Later later_;
  Written written_;
};

// The state of workers, which a trial never reads again: only reports it as written.
class TrialBlobStore final : public server::BlobStore {
 public:
  using Written = std::function<void(const server::BlobWritten&)>;
  TrialBlobStore(Later later, Written written) : later_(std::move(later)), written_(std::move(written)) {}

  void Write(server::BlobWrite write) override {
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
  Expected<server::BlobSlice> Read(const std::string&, WorkerRank, std::uint64_t, std::size_t) override {
    return Fail(ErrorCode::kNotFound, "a trial starts anew");
  }

 private:
  Later later_;
  Written written_;
};

}  // namespace tarn::sim
