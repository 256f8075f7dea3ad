// The worker's blob (core/codec/worker_blob.h): takes it when a checkpoint asks for it, sends it to a shard and tells
// the scheduler which file it has become; and fetches the one that a resumed worker goes on from. One piece at a time,
// each repeated until it is answered. Rules K9, K10 of docs/protocol.md. Internal to worker/; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/client/client_context.h"
#include "worker/client/residuals.h"

namespace tarn::worker {

class ClientBlob {
 public:
  ClientBlob(ClientContext* context, Residuals* residuals) : context_(context), residuals_(residuals) {}

  // Begins to fetch the blob that the Welcome speaks of, if it does.
  void OnWelcome();
  // What was there to be fetched is there: until then no push may be made.
  bool restored() const { return !get_; }

  // Once a step, behind all else: takes the blob when the ticks asked for have reached the order's clock. Every push of
  // an earlier clock was made before, and none of a later one by a worker that pushes where it has pulled in bsp.
  void Dispatch(Clock asked);
  void OnAck(ShardId from, const PutBlobAck& ack);
  void OnPiece(ShardId from, const BlobPiece& piece, const Buffer& bytes);
  void OnTimer();
  TimeUs NextTimer() const;
  // No order waits for a blob that was taken.
  bool idle() const { return !put_; }
  std::uint64_t Hash() const;

 private:
  struct Repeats {
    TimeUs due = 0;
    std::uint32_t count = 0;
  };
  struct Put {
    CheckpointId checkpoint;
    Clock clock;
    std::vector<Buffer> chunks;
    std::vector<std::uint64_t> offsets;  // of each, and of the end
    std::size_t next = 0;                // chunk
    std::optional<CheckpointFile> file;  // all of it is durable
    Repeats repeats;
  };
  struct Get {
    Buffer bytes;
    std::uint64_t received = 0;
    Repeats repeats;
  };

  ShardId Shard() const { return ShardId(context_->welcome.rank % context_->shards()); }
  void Take(const CheckpointOrder& order, Clock asked);
  void Send(Put* put);
  void Ask(Get* get);
  void Restore();
  void Pause(Repeats* repeats);

  ClientContext* context_;
  Residuals* residuals_;
  std::optional<Put> put_;
  std::optional<Get> get_;
};

}  // namespace tarn::worker
