// Receives and serves blobs of workers. For a checkpoint (rule K9), a worker sends pieces in order, one at a time, and
// each is answered when it is written; workers that resume from a checkpoint read their blobs (rule K10). Memory is
// bounded, because a worker sends its next piece only when the previous one is on disk. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/message.h"
#include "server/checkpoint/blob_store.h"

namespace tarn::server {

class BlobDesk {
 public:
  // The store outlives it; null: every piece is rejected, and Get finds nothing.
  explicit BlobDesk(BlobStore* store) : store_(store) {}

  struct Answer {
    Peer to;
    PutBlobAck ack;
  };
  // Handles a piece. If it is the next one, begins to write it, and OnWritten returns the answer. If it is not, returns
  // the answer now. Drops the piece while another one is being written, or after the blob was abandoned.
  // kUnavailable: no such checkpoint is being written here; kInvalidArgument: earlier pieces named another total size.
  Expected<std::optional<Answer>> Put(Peer from, const Sender& sender, const PutBlob& piece, const Buffer& bytes);

  // Handles a report of the store. Returns the answer to the worker; nullopt if the blob was abandoned. The error is
  // that of the write.
  Expected<std::optional<Answer>> OnWritten(const BlobWritten& written);

  // Sets the current checkpoint, or none. Abandons the incomplete blobs of other checkpoints.
  void SetOrder(const CheckpointOrder& order);
  // Abandons the incomplete blobs of a worker that has left or died.
  void Drop(Incarnation worker);

  // Sets the checkpoint from which the run resumes. Get reads the blob of a rank in it, from an offset: kNotFound if
  // there is none, or the run does not resume; other errors name the file.
  void SetResumed(std::string directory) { resumed_directory_ = std::move(directory); }
  Expected<BlobSlice> Get(const GetBlob& wanted) const;

  // The oldest checkpoint into whose directory the store may still write; 0: none.
  CheckpointId writing() const;

 private:
  struct Blob {
    Peer peer;
    std::string directory;
    WorkerRank rank;
    std::uint64_t total = 0, received = 0;
    bool busy = false;       // a piece is being written
    bool abandoned = false;  // waits for the store's report (kCancelled)
    CheckpointFile file;     // set when the blob is complete
    bool whole() const { return !file.name.empty(); }
  };
  using Id = std::pair<CheckpointId, Incarnation>;

  void Abandon(const Id& id, Blob* blob);
  static Answer AnswerOf(const Id& id, const Blob& blob);

  BlobStore* store_;
  CheckpointOrder order_;
  std::string resumed_directory_;
  std::map<Id, Blob> blobs_;
};

}  // namespace tarn::server
