// Blobs of workers as files of a checkpoint's directory, written by a thread of its own, which is there from the first
// write on. All but the writing is the shard's thread's.
//
//   FileBlobStore blobs([&] { transport.Wake(); });
//   for (BlobWritten& written : blobs.TakeWritten()) shard.OnBlobWritten(written, now, &out);
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "core/codec/manifest.h"
#include "core/descriptor.h"
#include "server/checkpoint/blob_store.h"

namespace tarn::server {

class FileBlobStore : public BlobStore {
 public:
  // `wake` is called from the writing thread whenever there is something to take.
  explicit FileBlobStore(std::function<void()> wake) : wake_(std::move(wake)) {}
  // Leaves the files at hand as they are; without a manifest they are none of a checkpoint.
  ~FileBlobStore() override;

  void Write(BlobWrite write) override;
  void Abandon(CheckpointId checkpoint, const std::string& directory, Incarnation worker, WorkerRank rank) override;
  Expected<BlobSlice> Read(const std::string& directory, WorkerRank rank, std::uint64_t offset,
                           std::size_t bytes_max) override;

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
  void WriteJobs();
  BlobWritten Do(const BlobWrite& write);
  BlobWritten Do(const AbandonJob& job);
  Expected<CheckpointFile> WritePiece(const BlobWrite& write);
  Expected<Open*> OpenFor(const BlobWrite& write, const std::string& path);
  Expected<CheckpointFile> Verified(const std::string& directory, WorkerRank rank);

  std::function<void()> wake_;
  std::mutex mutex_;  // guards the next four
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<BlobWritten> written_;
  bool closing_ = false;
  std::map<Id, Open> open_;                                                // the thread's
  std::map<std::pair<std::string, WorkerRank>, CheckpointFile> verified_;  // of whole checkpoints
  std::thread thread_;
};

}  // namespace tarn::server
