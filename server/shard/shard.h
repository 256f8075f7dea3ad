// One shard: the single owner of its partitions. A deterministic state machine: messages and timers go in, messages
// come out through an outbox; it opens no socket, starts no thread, reads no clock and draws no random number.
// docs/protocol.md specifies the rules; the code cites them by number.
//
// Not thread-safe: one thread owns it. OnMessage of a Welcome blocks while it loads a checkpoint or replays the log.
// Other calls block only on page faults, on synchronous reads of cold rows and of blobs (rule K10), and while the disk
// has no room for evicted rows (rule T5). A step that runs out of memory sends nothing more than the reason to the
// scheduler, and the shard stops (kIo).
//
//   Shard shard(options, store);
//   shard.Start(now, &out);
//   shard.OnMessage(peer, std::move(message), now, &out);   // for each message received
//   if (now >= shard.NextTimer()) shard.OnTimer(now, &out);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/error.h"
#include "core/message.h"
#include "core/view.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_observer.h"
#include "server/shard/shard_options.h"

namespace tarn::server {

class CheckpointStore;  // server/checkpoint/checkpoint_store.h
class Store;            // server/store/store.h
struct BlobWritten;     // server/checkpoint/blob_store.h

class Shard {
 public:
  // `store` outlives the shard; its results are passed to OnCheckpointWritten. `observer` may be null, else it outlives
  // the shard.
  Shard(ShardOptions options, CheckpointStore* store, ShardObserver* observer = nullptr);
  ~Shard();

  // Must be called first. Sends the first Join.
  void Start(TimeUs now, Outbox* out);
  // The contents of `message` are unspecified afterwards.
  void OnMessage(Peer from, Message&& message, TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  // The earliest time at which OnTimer has something to do. While a cut is being copied, this is usually now.
  TimeUs NextTimer() const;

  // Reports that the store has written, or failed to write, this shard's part of a checkpoint.
  void OnCheckpointWritten(CheckpointPart part, TimeUs now, Outbox* out);

  // Handles a report of the blob store.
  void OnBlobWritten(const BlobWritten& written, TimeUs now, Outbox* out);

  // Call it when the log has synced records: sends the messages that waited for them. Does nothing without a log.
  void OnLogSynced(TimeUs now, Outbox* out);
  // Call it when the cold store has read or written rows, and periodically.
  void OnTier(TimeUs now, Outbox* out);
  // Sets the memory that the shard may use. Only for shards with a tier.
  void SetMemoryLimit(std::size_t bytes);
  // Memory of rows and waiting messages, which counts towards the limit.
  std::size_t memory_bytes() const;

  // Reports a failure of the loop to the scheduler and stops the shard. Does nothing if it has stopped already.
  void Abandon(const Error& error, Outbox* out);

  // Whether the shard has stopped: the scheduler has sent Shutdown, or the shard cannot continue. A stopped shard
  // serves no requests.
  bool stopped() const;
  // Whether the shard has stopped and its loop may end. A shard that stops by itself repeats the reason until the
  // scheduler answers with Shutdown, but not longer than a lease and three regular sends (rule S2).
  bool ended() const;
  // Why the shard has stopped. Meaningless before that.
  const Shutdown& stop_reason() const;

  const View& view() const;
  Clock minimum_clock() const;
  const Store& rows() const;
  const ShardCounters& counters() const;
  // Time of the scheduler's last message (if none, of the start), and how long a node may continue without one (rule
  // N5).
  TimeUs scheduler_heard() const;
  TimeUs lease_us() const;
  TimeUs busy_poll_us() const;  // the job's setting, for the loop; the state machine does not use it
  bool joined() const;          // Welcome was received, and the state that it names is loaded
  // The durable part of the log, and whether that is all of it (rule L1).
  LogSequence log_synced() const;
  bool log_is_durable() const;
  // Hash of DurableHash and of the transient state: cut, parked pulls, delayed messages, positions in the log, key
  // lists. For determinism checks. An error is the tier's, here and below: a row on disk cannot be read.
  Expected<std::uint64_t> StateHash() const;
  // Hash of the state that a log restores: rows, slots, clocks, watermarks, gathered pushes, versions. Equal after a
  // recovery.
  Expected<std::uint64_t> DurableHash() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::server
