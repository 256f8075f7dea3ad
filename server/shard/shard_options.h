// Options of a shard: its identity, limits, stores and log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/error.h"
#include "core/job/job.h"
#include "core/limits.h"
#include "core/types.h"
#include "server/clock/consistency_policy.h"
#include "server/shard/shard_step.h"

namespace tarn::server {

class BlobStore;  // server/checkpoint/blob_store.h
class ColdStore;  // server/tier/cold_store.h
class ShardLog;   // server/log/shard_log.h

// The disk tier of a shard, for rows beyond its memory budget.
struct Tier {
  std::unique_ptr<ColdStore> store;  // null: all rows stay in memory
  std::size_t limit_bytes = 0;       // memory budget of this shard
};

struct ShardOptions {
  ShardId shard;
  std::uint64_t nonce = 0;              // random per process start (rule N1)
  std::string endpoint;                 // where clients reach this shard
  std::uint32_t shards_per_server = 0;  // of this process; must equal that of the job; 0: not checked (rule N1)
  std::string http;                     // address of this process's HTTP server (rule N8); empty: none
  // Bytes of aggregated pushes that wait for their clock. Pushes beyond this are rejected with kOverloaded, except
  // those of the next clock to close, for which the others wait. That clock may use twice as much; a push beyond that
  // ends the job with kTooLarge.
  std::size_t bucket_bytes_max = limits::kBucketBytesMax;
  // Number and bytes of parked pulls; further pulls are rejected with kOverloaded.
  std::size_t parked_pulls_max = limits::kParkedPullsMax;
  std::size_t parked_bytes_max = limits::kBucketBytesMax;
  // Bytes of rows copied per slice of a checkpoint, and the minimum time between two slices.
  std::size_t cut_slice_bytes = limits::kCutSliceBytes;
  TimeUs cut_pause_us = 0;
  // Number of removed keys recorded for the next checkpoint (StoreOptions). With more, that checkpoint must be full.
  std::uint64_t removed_keys_max = limits::kRemovedKeysMax;
  // Bytes of pull replies that the transport has not sent yet, for all clients and for one. Pulls beyond this are
  // rejected with kOverloaded.
  std::size_t reply_bytes_max = limits::kReplyBytesMax;
  std::size_t reply_peer_bytes_max = limits::kReplyPeerBytesMax;
  // Bytes of key lists that clients refer to by number (rule W3), for all clients and for one. Beyond this the least
  // recently used list is dropped.
  std::size_t held_lists_bytes_max = limits::kHeldListsBytesMax;
  std::size_t held_lists_peer_bytes_max = limits::kHeldListsPeerBytesMax;
  // Sends and empties the outbox. Called within a step as soon as the outbox has `flush_bytes` of payload; fewer are
  // sent together, so that the transport's thread is woken once. Must not call the shard; if it throws, messages may be
  // sent twice. If null, all messages stay in the outbox.
  std::function<void()> flush;
  std::size_t flush_bytes = ShardStep::kFlushBytes;
  // For jobs of durability "log"; outlives the shard. Null: such a job is rejected.
  ShardLog* log = nullptr;
  // Stores the state of workers in checkpoints; outlives the shard. Null: checkpoints with such state never complete.
  BlobStore* blobs = nullptr;
  // Creates the tier of the job when the job is known. Empty: all rows stay in memory, whatever the job requests.
  std::function<Expected<Tier>(const Job& job)> make_tier;
  // Microseconds since 1970, at the time `now` of a step; empty: `now`. Used by tables whose rows expire by seconds.
  std::function<TimeUs(TimeUs now)> unix_us;
  // Number and bytes of messages that wait for rows on disk; further ones are rejected with kOverloaded.
  std::size_t waiting_messages_max = limits::kWaitingMessagesMax;
  std::size_t waiting_bytes_max = limits::kWaitingBytesMax;
  // The consistency policies that tables may name.
  std::span<const PolicyEntry> policies = BuiltInPolicies();
};

}  // namespace tarn::server
