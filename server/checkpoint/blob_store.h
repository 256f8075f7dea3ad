// Storage for the blobs of workers (core/codec/worker_blob.h) in checkpoints (rules K9, K10). Pieces are written in the
// background; the shard's loop passes the reports to Shard::OnBlobWritten. An interface, so that a simulated fleet can
// store blobs in memory. All functions are called on the shard's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/buffer.h"
#include "core/error.h"
#include "core/message.h"
#include "core/types.h"

namespace tarn::server {

// The next bytes of one blob. A piece with offset 0 creates the blob's file in `directory`, or replaces it; the piece
// that ends at `total` completes it.
struct BlobWrite {
  CheckpointId checkpoint;
  std::string directory;
  Incarnation worker;
  WorkerRank rank;
  std::uint64_t offset = 0, total = 0;
  Buffer bytes;
};

// The result of a write or, with kCancelled, of Abandon. Nothing of the blob is written after kCancelled.
struct BlobWritten {
  CheckpointId checkpoint;
  Incarnation worker;
  std::uint64_t received = 0;  // if the write succeeded: bytes of the blob so far
  CheckpointFile file;         // no name: the blob is incomplete; otherwise its bytes are durable
  ErrorCode code = ErrorCode::kOk;
  std::string message;
};

struct BlobSlice {
  std::uint64_t total = 0;  // bytes of the whole blob
  Buffer bytes;
};

class BlobStore {
 public:
  virtual ~BlobStore() = default;

  // Queues a piece and returns. Each write is reported once. Pieces of a blob must be written in order; after a failed
  // write the next piece must have offset 0.
  virtual void Write(BlobWrite write) = 0;
  // Queues the removal of a blob's file, complete or not. Reported as kCancelled.
  virtual void Abandon(CheckpointId checkpoint, const std::string& directory, Incarnation worker, WorkerRank rank) = 0;

  // Reads at most `bytes_max` bytes, from `offset` on, of the blob of a rank in a complete checkpoint. May block.
  // kOverloaded: the blob is being verified in the background, read again later. kNotFound: the checkpoint has no blob
  // of the rank, or `offset` is not in it. kCorrupt or kIo, naming the file: it differs from the manifest or cannot be
  // read.
  virtual Expected<BlobSlice> Read(const std::string& directory, WorkerRank rank, std::uint64_t offset,
                                   std::size_t bytes_max) = 0;
};

// The name of a blob's file. It contains the worker's incarnation, so two starts of a worker never use the same file.
std::string BlobFileName(CheckpointId checkpoint, WorkerRank rank, Incarnation worker);

}  // namespace tarn::server
