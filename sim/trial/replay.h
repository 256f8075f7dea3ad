// Repeats a recorded run in a trial. A gate for each shard holds messages until their turn; leases and the beginnings
// of batches follow the recording too. Detects a trial that differs from the recording or that cannot continue. One
// thread.
//
//   Replay replay(recording, until);
//   while (...) {                        // the run
//     if (replay.IsOver(samples)) replay.Leave();
//     TARN_RETURN_IF_ERROR(replay.Check(now));
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "sim/trial/effect_gate.h"
#include "sim/trial/recording.h"
#include "worker/train/pipeline.h"

namespace tarn::sim {

class Replay {
 public:
  // `until`: the number of trained samples at which the trial leaves the recording; none: it repeats the whole run.
  Replay(Recording recording, std::optional<std::uint64_t> until);
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  // What the nodes repeat; valid as long as this object. The gate observes its shard.
  const std::vector<WorkerRank>& leases() const { return recording_.leases; }
  const worker::BatchBegins* begins(WorkerRank worker) const { return &recording_.begins[worker.value]; }
  EffectGate* gate(ShardId shard) { return &gates_[shard.value]; }

  // Whether the trial must leave the recording now. Never again after Leave.
  bool IsOver(std::uint64_t samples) const { return !left_ && until_ && samples >= *until_; }
  // Opens the gates and lets batches begin as soon as they are read. The caller then takes the held messages of each
  // gate.
  void Leave();
  bool left() const { return left_; }

  // kCorrupt: a shard differs from the recording, or no effect was repeated for a minute of simulated time, because a
  // message does not arrive. Ok after Leave.
  Status Check(TimeUs now);
  // For a job that is done. kCorrupt: a shard did not repeat all of its effects. Ok after Leave.
  Status CheckComplete() const;
  // The number of repeated effects of each shard.
  std::vector<std::size_t> repeated() const;

 private:
  Recording recording_;
  const std::optional<std::uint64_t> until_;
  std::deque<EffectGate> gates_;  // by shard
  bool left_ = false;
  std::size_t repeated_ = 0;  // effects of all shards, in the last Check
  TimeUs repeated_at_ = 0;    // when this number last grew
};

}  // namespace tarn::sim
