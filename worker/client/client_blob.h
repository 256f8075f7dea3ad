// The worker's blob (core/codec/worker_blob.h): creates it for a checkpoint, sends it to a shard and reports its file
// to the scheduler; and fetches the blob from which a resumed worker continues. Transfers one piece at a time and
// repeats each until it is answered. Rules K9, K10 of docs/protocol.md. Internal to worker/; one thread.
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

  // Starts to fetch the blob that the Welcome names, if any.
  void OnWelcome();
  // Whether there is no blob left to fetch. No push may be made before.
  bool restored() const { return !get_; }

  // Call it last in each step. Creates the blob when the requested ticks reach the order's clock: all pushes of earlier
  // clocks were made then, and none of later clocks if the worker pushes in bsp at the clock of its pulls.
  void Dispatch(Clock asked);
  void OnAck(ShardId from, const PutBlobAck& ack);
  void OnPiece(ShardId from, const BlobPiece& piece, const Buffer& bytes);
  void OnTimer();
  TimeUs NextTimer() const;
  // Whether no blob is being sent.
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
    std::vector<std::uint64_t> offsets;  // of each chunk, and of the end
    std::size_t next = 0;                // chunk
    std::optional<CheckpointFile> file;  // set when the whole blob is durable
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
