// Where the blobs of workers (core/codec/worker_blob.h) go with a checkpoint and come from after it (rules K9, K10).
// Pieces are written beside the shard's work and reported, on the shard's thread, through Shard::OnBlobWritten. An
// interface, so that a simulated fleet can keep them in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/buffer.h"
#include "core/error.h"
#include "core/message.h"
#include "core/types.h"

namespace tarn::server {

// The next bytes of one blob. The first ones (offset 0) begin its file in `directory`, the last ones end it.
struct BlobWrite {
  CheckpointId checkpoint;
  std::string directory;
  Incarnation worker;
  WorkerRank rank;
  std::uint64_t offset = 0, total = 0;
  Buffer bytes;
};

// What came of a write, or of giving a blob up (kCancelled): nothing more will be written of it then.
struct BlobWritten {
  CheckpointId checkpoint;
  Incarnation worker;
  std::uint64_t received = 0;
  CheckpointFile file;  // no name: not all of it yet; else it is durable
  ErrorCode code = ErrorCode::kOk;
  std::string message;
};

struct BlobSlice {
  std::uint64_t total = 0;
  Buffer bytes;
};

class BlobStore {
 public:
  virtual ~BlobStore() = default;

  // Returns at once; each is reported once. After one that failed the blob is closed.
  virtual void Write(BlobWrite write) = 0;
  // The blob is not wanted any more, whether its file is whole or not: that goes. Reported as kCancelled.
  virtual void Abandon(CheckpointId checkpoint, const std::string& directory, Incarnation worker, WorkerRank rank) = 0;

  // At most `bytes_max` bytes from `offset` on of the blob that a whole checkpoint has of a rank. Blocks. kNotFound: it
  // has none. kCorrupt or kIo, naming the file: it is not what the manifest says.
  virtual Expected<BlobSlice> Read(const std::string& directory, WorkerRank rank, std::uint64_t offset,
                                   std::size_t bytes_max) = 0;
};

// The name of its file: no two starts of a worker share one.
std::string BlobFileName(CheckpointId checkpoint, WorkerRank rank, Incarnation worker);

}  // namespace tarn::server
