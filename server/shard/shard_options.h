// What a shard is given: who it is, its limits, and the stores and the log around it.
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

namespace tarn::server {

class BlobStore;  // server/checkpoint/blob_store.h
class ColdStore;  // server/tier/cold_store.h
class ShardLog;   // server/log/shard_log.h

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
  // The consistency policies that tables may name.
  std::span<const PolicyEntry> policies = BuiltInPolicies();
};

}  // namespace tarn::server
