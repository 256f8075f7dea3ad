// Stores the blobs of workers as files in a checkpoint's directory. A strand of a pool writes them, and verifies large
// ones; all functions are called on the shard's thread.
//
//   FileBlobStore blobs(&pool, [&] { transport.Wake(); });
//   for (BlobWritten& written : blobs.TakeWritten()) shard.OnBlobWritten(written, now, &out);
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/codec/manifest.h"
#include "core/descriptor.h"
#include "core/disk_pool.h"
#include "server/checkpoint/blob_store.h"

namespace tarn::server {

class FileBlobStore : public BlobStore {
 public:
  // Larger blobs are verified by the strand: the shard must not be silent meanwhile.
  static constexpr std::uint64_t kVerifyAtOnceBytes = std::uint64_t{64} << 20;
  // `wake` is called on the strand when TakeWritten has new reports. The pool outlives the store.
  FileBlobStore(DiskPool* pool, std::function<void()> wake, std::uint64_t verify_at_once_bytes = kVerifyAtOnceBytes)
      : wake_(std::move(wake)), verify_at_once_bytes_(verify_at_once_bytes), writes_(pool, "blobs") {}
  // Leaves incomplete files in place; without a manifest they belong to no checkpoint.
  ~FileBlobStore() override;

  void Write(BlobWrite write) override;
  void Abandon(CheckpointId checkpoint, const std::string& directory, Incarnation worker, WorkerRank rank) override;
  Expected<BlobSlice> Read(const std::string& directory, WorkerRank rank, std::uint64_t offset,
                           std::size_t bytes_max) override;

  // The reports since the last call, in order.
  std::vector<BlobWritten> TakeWritten();

 private:
  struct AbandonJob {
    CheckpointId checkpoint;
    std::string path;
    Incarnation worker;
  };
  using Job = std::variant<BlobWrite, AbandonJob>;
  using Id = std::pair<CheckpointId, Incarnation>;
  struct Open {
    Descriptor file;
    std::uint32_t crc32c = 0;
  };

  void Queue(Job job);
  void DoAndReport(const Job& job);
  BlobWritten Do(const BlobWrite& write);
  BlobWritten Do(const AbandonJob& job);
  Expected<CheckpointFile> WritePiece(const BlobWrite& write);
  Expected<Open*> OpenFor(const BlobWrite& write, const std::string& path);
  Expected<CheckpointFile> Verified(const std::string& directory, WorkerRank rank);
  static Expected<CheckpointFile> Verify(const std::string& directory, const CheckpointFile& file);

  std::function<void()> wake_;
  std::uint64_t verify_at_once_bytes_;
  std::mutex mutex_;  // guards the next two
  std::vector<BlobWritten> written_;
  // Files that Read has verified, by directory and rank; nullopt: the strand verifies it.
  std::map<std::pair<std::string, WorkerRank>, std::optional<Expected<CheckpointFile>>> verified_;
  std::atomic<bool> closing_ = false;
  std::map<Id, Open> open_;  // incomplete blobs; used only on the strand
  DiskPool::Strand writes_;
};

}  // namespace tarn::server
