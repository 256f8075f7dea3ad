// Blobs of workers: on their way into a checkpoint (rule K9) it takes pieces in order, one at a time, and answers once
// each is written; workers that go on from a checkpoint get theirs back (rule K10). Bounded by the store: a worker's
// next piece is asked for when the one before is on disk. Not thread-safe.
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
  // The store outlives it; null: every piece is refused, and there is nothing to get.
  explicit BlobDesk(BlobStore* store) : store_(store) {}

  struct Answer {
    Peer to;
    PutBlobAck ack;
  };
  // A piece has come. Answered at once if it is not the next one, and not at all while one is being written.
  // kUnavailable: no such checkpoint is being written here; kInvalidArgument: the piece does not fit the ones before.
  Expected<std::optional<Answer>> Put(Peer from, const Sender& sender, const PutBlob& piece, const Buffer& bytes);

  // The store has reported. What it could not write is an error, unless nobody wants it any more.
  Expected<std::optional<Answer>> OnWritten(const BlobWritten& written);

  // This checkpoint is being written now, or none: blobs of others are given up.
  void SetOrder(const CheckpointOrder& order);
  // The worker is gone, and what is not whole of its blob with it.
  void Drop(Incarnation worker);

  // The run goes on from this checkpoint. Get reads the blob that it has of a rank, from the offset on: kNotFound if
  // there is none, or the run goes on from no checkpoint; other errors name the file.
  void SetResumed(std::string directory) { resumed_directory_ = std::move(directory); }
  Expected<BlobSlice> Get(WorkerRank rank, const GetBlob& wanted) const;

  // The oldest checkpoint into whose directory the store may still write; 0: none.
  CheckpointId writing() const;

 private:
  struct Blob {
    Peer peer;
    std::string directory;
    WorkerRank rank;
    std::uint64_t total = 0, received = 0;
    bool busy = false;      // a piece is being written
    bool given_up = false;  // the store will say when it is done with it
    CheckpointFile file;    // once it is whole
    bool whole() const { return !file.name.empty(); }
  };
  using Id = std::pair<CheckpointId, Incarnation>;

  void GiveUp(const Id& id, Blob* blob);
  static Answer AnswerOf(const Id& id, const Blob& blob);

  BlobStore* store_;
  CheckpointOrder order_;
  std::string resumed_directory_;
  std::map<Id, Blob> blobs_;
};

}  // namespace tarn::server
