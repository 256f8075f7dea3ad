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
#include <functional>
#include <memory>
#include <string>

#include "core/error.h"
#include "core/job/job.h"
#include "core/limits.h"
#include "core/message.h"

namespace tarn::server {

class BlobStore;        // server/checkpoint/blob_store.h
class CheckpointStore;  // server/checkpoint/checkpoint_store.h
class ColdStore;        // server/tier/cold_store.h
class Store;            // server/store/store.h
class ShardLog;         // server/log/shard_log.h
struct BlobWritten;     // server/checkpoint/blob_store.h

// Where a shard's rows go that its memory has no room for.
struct Tier {
  std::unique_ptr<ColdStore> store;  // null: all rows stay in memory
  std::size_t limit_bytes = 0;       // of this shard
};

struct ShardOptions {
  ShardId shard;
  std::uint64_t nonce = 0;              // random per process start (rule N1)
  std::string endpoint;                 // where clients reach this shard
  std::uint32_t shards_per_server = 0;  // of this process, which must be the job's; 0: nobody asks (rule N1)
  // Aggregated pushes that wait for their clock. Beyond, a push of a clock that is not the next to close is refused
  // with kOverloaded. The next to close is what the others wait for: it may take twice as much, and a push of it that
  // is beyond ends the job with kTooLarge.
  std::size_t bucket_bytes_max = limits::kBucketBytesMax;
  // Pulls that wait; beyond, they are refused with kOverloaded.
  std::size_t parked_pulls_max = limits::kParkedPullsMax;
  std::size_t parked_bytes_max = limits::kBucketBytesMax;
  // Rows that are copied for a checkpoint at one go, in bytes, and the least time between two goes.
  std::size_t cut_slice_bytes = limits::kCutSliceBytes;
  TimeUs cut_pause_us = 0;
  // Keys of rows that are gone, remembered for the next checkpoint (StoreOptions); beyond, that one must be full.
  std::uint64_t removed_keys_max = limits::kRemovedKeysMax;
  // Pull replies that the network has not taken yet, of all clients and of one; beyond, pulls are refused with
  // kOverloaded.
  std::size_t reply_bytes_max = limits::kReplyBytesMax;
  std::size_t reply_peer_bytes_max = limits::kReplyPeerBytesMax;
  // Lists of keys that clients name instead of sending them (rule W3), of all and of one; beyond, the one used longest
  // ago goes.
  std::size_t held_lists_bytes_max = limits::kHeldListsBytesMax;
  std::size_t held_lists_peer_bytes_max = limits::kHeldListsPeerBytesMax;
  // For jobs of durability "log"; outlives the shard. Null: such a job is refused.
  ShardLog* log = nullptr;
  // Where workers' own state goes with checkpoints; outlives the shard. Null: checkpoints with such state never end.
  BlobStore* blobs = nullptr;
  // Makes the tier that the job asks for, once it is known. Empty: all rows stay in memory whatever the job asks for.
  std::function<Expected<Tier>(const Job& job)> make_tier;
  // What to add to the times handed in to get microseconds since 1970: tables whose rows expire by seconds count those.
  TimeUs unix_us_at_zero = 0;
  // Messages that wait for rows on disk; beyond, they are refused with kOverloaded.
  std::size_t waiting_messages_max = limits::kWaitingMessagesMax;
  std::size_t waiting_bytes_max = limits::kWaitingBytesMax;
};

// Events for checkers and metrics; all default to nothing. Called synchronously from within a step.
class ShardObserver {
 public:
  virtual ~ShardObserver() = default;
  virtual void OnPushApplied(Incarnation, PartitionId, Sequence, Clock) {}  // applied or gathered, once
  // A log has brought it back: sequences up to this one were applied or gathered.
  virtual void OnWatermark(Incarnation, PartitionId, Sequence) {}
  virtual void OnPushVoided(Incarnation, PartitionId, Sequence, Clock) {}  // rule M3: never counted
  virtual void OnPullServed(Incarnation, TableId, Clock /*use*/, Clock /*minimum*/) {}
  virtual void OnClockClosed(Clock) {}
};

struct ShardCounters {
  std::uint64_t pulls = 0, pulls_parked = 0, pull_rows = 0;
  std::uint64_t pushes = 0, push_rows = 0, pushes_repeated = 0, pushes_out_of_order = 0;
  std::uint64_t refused_epoch = 0, refused_fenced = 0, refused_other = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t waited_for_rows = 0;  // messages
};

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
