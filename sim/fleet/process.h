// One start of a node of the simulated fleet: a state machine with its stores. Plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "scheduler/scheduler.h"
#include "server/shard/shard.h"
#include "sim/disks/memory_cold_store.h"
#include "sim/network.h"
#include "sim/shard_checker.h"
#include "sim/sim_blobs.h"
#include "sim/sim_log.h"
#include "sim/sim_store.h"
#include "sim/sim_worker.h"

namespace tarn::sim {

// Exactly one of scheduler, shard and worker is set.
struct Process {
  NodeId node = 0;
  std::unique_ptr<scheduler::Scheduler> scheduler;
  std::unique_ptr<SimShardStore> store;
  std::unique_ptr<SimBlobStore> blobs;
  std::unique_ptr<SimLog> log;
  bool log_busy = false;   // a write or a sync is in progress
  bool slow_sync = false;  // the next sync is slow
  LogSequence witnessed;   // shard: the last record with a recorded state
  std::unique_ptr<ShardChecker> checker;
  std::unique_ptr<server::Shard> shard;
  server::MemoryColdStore* cold = nullptr;  // of the shard
  std::unique_ptr<SimWorker> worker;
  std::uint32_t rank = 0;
  bool settles = false;  // scheduler, worker: a call of Settle is planned
  TimeUs paused_until = 0;
  TimeUs recovers_us = 0;  // shard: time to read its log after the Welcome
  TimeUs ahead = 0;        // shard: the sum of its clock's jumps
  TimeUs timer_at = -1;
  std::uint64_t timer_version = 0;
  Clock last_clock;
  CheckpointId order;             // worker: the newest order seen
  std::optional<Clock> crash_at;  // worker
  bool stopped = false;           // shard: stopped by itself; it reports the reason until it is answered (rule S2)
  bool over = false;              // takes no more steps
};

}  // namespace tarn::sim
