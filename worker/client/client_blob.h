// The worker's blob (core/codec/worker_blob.h): creates it for a checkpoint, with the state of the program if it keeps
// any, sends it to a shard and reports its file to the scheduler; and fetches the blob from which a resumed worker
// continues, or another rank's for its program. Transfers one piece at a time and repeats each until it is answered.
// Rules K9, K10 of docs/protocol.md. Internal to worker/; one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "worker/client/client_context.h"
#include "worker/client/completion.h"
#include "worker/client/residuals.h"

namespace tarn::worker {

class ClientBlob {
 public:
  ClientBlob(ClientContext* context, Residuals* residuals) : context_(context), residuals_(residuals) {}

  // Starts to fetch the blob that the Welcome names, if any.
  void OnWelcome();
  // Whether the worker's own state has been fetched. No push may be made before.
  bool restored() const { return !get_ || get_->reader != nullptr; }

  // See worker::Client.
  void KeepState() { keeps_ = true; }
  void AwaitSave(Completion<CheckpointId>* done);
  void Save(CheckpointId checkpoint, Expected<std::vector<Buffer>> chunks, Clock asked);
  void Read(WorkerRank rank, Completion<Buffer>* done);
  // Whether the program may have changed its state since its last tick.
  bool MayBeMidClock() const { return keeps_ && saver_ == nullptr; }

  // Call it at the end of each step, after its requests. Creates the blob when the requested ticks reach the order's
  // clock: by then all pushes of earlier clocks have been made and, if the worker pushes in bsp at the clock of its
  // pulls, none of later clocks. If the program keeps state, completes AwaitSave instead, and Save creates the blob.
  // `undecided`: an order for the current clock may still come.
  void Dispatch(Clock asked, bool undecided);
  void OnAck(ShardId from, const PutBlobAck& ack);
  void OnPiece(ShardId from, const BlobPiece& piece, const Buffer& bytes);
  void OnTimer();
  TimeUs NextTimer() const;
  // Whether no blob is being sent.
  bool idle() const { return !put_; }
  // Whether the shard has not answered a piece.
  bool WaitsFor(ShardId shard) const { return ((put_ && !put_->file) || get_) && shard == Shard(); }
  void FailAll(const Error& error);
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
    bool program_state = false;
    std::optional<CheckpointFile> file;  // set when the whole blob is durable
    Repeats repeats;
  };
  struct Get {
    WorkerRank rank;
    Completion<Buffer>* reader = nullptr;  // null: the worker itself continues from it
    Buffer bytes;
    std::uint64_t received = 0;
    Repeats repeats;
  };

  ShardId Shard() const { return ShardId(context_->welcome.rank % context_->shards()); }
  void Begin(WorkerRank rank, Completion<Buffer>* reader);
  bool Due(Clock asked) const;
  void Take(Clock asked, std::vector<Buffer> program_state);
  void Send(Put* put);
  void Ask(Get* get);
  void Finish();
  void Pause(Repeats* repeats);

  ClientContext* context_;
  Residuals* residuals_;
  bool keeps_ = false;                         // there is state of the program
  Completion<CheckpointId>* saver_ = nullptr;  // the program waits to learn whether to save its state
  std::optional<Put> put_;
  std::optional<Get> get_;
};

}  // namespace tarn::worker
