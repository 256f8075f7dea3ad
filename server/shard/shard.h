// One shard: the single owner of its partitions. A deterministic state machine: messages and timers go in, messages
// come out through an outbox; it opens no socket, starts no thread, reads no clock and draws no random number.
// docs/protocol.md gives the rules; the code cites them by number.
//
// Not thread-safe: one thread owns it. Nothing blocks, apart from memory, and rows on disk that could not be fetched
// before they were needed. A step that meets the end of the memory sends
// nothing but the reason to the scheduler, and the shard has stopped with it (kIo).
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
  // `store` outlives the shard and reports back through OnCheckpointWritten.
  Shard(ShardOptions options, CheckpointStore* store, ShardObserver* observer = nullptr);
  ~Shard();

  void Start(TimeUs now, Outbox* out);
  void OnMessage(Peer from, Message message, TimeUs now, Outbox* out);
  void OnTimer(TimeUs now, Outbox* out);
  // The earliest time at which OnTimer has something to do; while a checkpoint is being cut, at once.
  TimeUs NextTimer() const;

  // The store has written (or failed to write) this shard's part of a checkpoint.
  void OnCheckpointWritten(CheckpointPart part, TimeUs now, Outbox* out);

  // The blob store has something to report.
  void OnBlobWritten(const BlobWritten& written, TimeUs now, Outbox* out);

  // The log's TakeSynced, whenever it has news: acknowledgements leave that waited for it. Nothing if there is no log.
  void OnLogSynced(TimeUs now, Outbox* out);
  // Rows have come from disk, or were written: the cold store says when. Also now and then without being asked.
  void OnTier(TimeUs now, Outbox* out);
  // What the shard may hold from now on, of the memory that its process has. Nothing without a tier.
  void SetMemoryLimit(std::size_t bytes);
  // Rows and what waits: what the limit is compared with.
  std::size_t memory_bytes() const;

  // What its loop failed at: the scheduler is told why, and the shard has stopped. Nothing if it had already.
  void Abandon(const Error& error, Outbox* out);

  // Set once the scheduler has said so, or a fatal error (storage) happened: from then on it serves nobody.
  bool stopped() const;
  // Stopped, and there is nothing left to say: the loop ends. A shard that stops by itself repeats why until the
  // scheduler has answered with Shutdown, for a lease at most, or thrice in due time (rule S2).
  bool ended() const;
  const Shutdown& stop_reason() const;

  const View& view() const;
  Clock minimum_clock() const;
  const Store& rows() const;
  const ShardCounters& counters() const;
  // When the scheduler was last heard (the start if never), and how long a node may go on without (rule N5).
  TimeUs scheduler_heard() const;
  TimeUs lease_us() const;
  TimeUs busy_poll_us() const;  // the job's wish; of the loop, not of the state machine
  bool joined() const;          // Welcome has come
  // How far the log is durable, and whether that is all of it (rule L1).
  LogSequence log_synced() const;
  bool log_is_durable() const;
  // Hash of the whole state: rows, slots, clocks, watermarks. For determinism checks. An error is the tier's, here and
  // below: a row on disk cannot be read.
  Expected<std::uint64_t> StateHash() const;
  // Hash of what a log keeps of it: rows, slots, clocks, watermarks, gathered pushes. The same after a recovery.
  Expected<std::uint64_t> DurableHash() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tarn::server
