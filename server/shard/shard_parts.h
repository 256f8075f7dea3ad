// Creates and owns the store of a shard and the objects around it. Created again at Welcome, which lists the
// partitions; until then the shard has no partitions. Internal to server/shard.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "server/clock/table_policies.h"
#include "server/shard/clocks.h"
#include "server/shard/durable_outbox.h"
#include "server/shard/fleet_view.h"
#include "server/shard/key_lists.h"
#include "server/shard/message_decoder.h"
#include "server/shard/pulls.h"
#include "server/shard/pushes.h"
#include "server/shard/row_gate.h"
#include "server/shard/row_timer.h"
#include "server/shard/senders.h"
#include "server/shard/shard_counters.h"
#include "server/shard/shard_cuts.h"
#include "server/shard/shard_observer.h"
#include "server/shard/shard_options.h"
#include "server/shard/shard_step.h"
#include "server/shard/soft_state.h"
#include "server/shard/stop_notice.h"
#include "server/shard/worker_messages.h"
#include "server/store/store.h"

namespace tarn::server {

// The objects of the shard that the parts use; all outlive the parts.
struct ShardBase {
  const ShardOptions& options;
  CheckpointStore* checkpoint_store;
  ShardObserver* observer;
  ShardCounters* counters;
  ShardStep* step;
  StopNotice* stop;
  DurableOutbox* outbox;
  BlobDesk* blobs;
  std::function<void()> on_tick;  // called after a worker's clock advanced
};

struct ShardParts {
  ShardParts(const ShardBase& base, const RouteMap& routes, StoreOptions store, std::unique_ptr<Residency> tier);
  ShardParts(const ShardParts&) = delete;
  ShardParts& operator=(const ShardParts&) = delete;

  // Bounds waiting messages and key lists by the memory budget of the shard. Only for stores with a tier.
  void SetMemoryLimit(std::size_t bytes);
  // Memory of the shard besides its rows.
  std::size_t WaitingBytes() const;
  SoftState soft_state() const { return {view.view(), cuts.newest_order(), clocks, rows}; }

  const ShardOptions& options;
  Store rows;
  TablePolicies policies;
  Clocks clocks;
  KeyLists lists;
  Senders senders;
  Pulls pulls;
  FleetView view;
  ShardCuts cuts;
  Pushes pushes;
  MessageDecoder decoder;
  RowGate gate;
  WorkerMessages messages;
  RowTimer timer;
};

}  // namespace tarn::server
