// Write-combining: the pushes of several clocks to a table are delayed and sent as one push, in which each row is the
// sum of theirs. Rules H6 to H8 of docs/protocol.md. Internal to worker/; one thread.
//
// Why the staleness bound s holds: a delayed push is an unacknowledged push of its clock, so the worker's tick after
// that clock waits too (C1). Below the minimum clock m of a shard all pushes of live workers are therefore applied, and
// a pull of clock c, which is answered when m + s >= c (C3), sees all pushes of clocks < c - s. Only the time of ticks
// changes. The cost: a worker may run ahead by up to k - 1 clocks less, because ticks of others are delayed.
//
// Why there is no deadlock: let t be the first clock of delayed pushes to a table with push_every = k. Their worker has
// ticked to t or later, and sends them when it ticks to t + k. Until then it pulls for clocks c <= t + k - 1. Its own
// tick does not block these pulls if t + s >= t + k - 1, that is k <= s + 1, which is checked for every table when the
// job is read. So the worker with the lowest tick can always continue, and the minimum clock advances.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "worker/client/client_context.h"
#include "worker/client/client_pushes.h"
#include "worker/client/plan.h"

namespace tarn::worker {

// Delayed pushes are sent when their worker has neither pushed nor ticked for this time.
inline constexpr TimeUs kCombinePauseUs = 1'000'000;

class PushCombiner {
 public:
  PushCombiner(ClientContext* context, ClientPushes* pushes) : context_(context), pushes_(pushes) {}

  // After Welcome: the job and the number of partitions are known.
  void Begin();
  // Whether pushes of this table are combined.
  bool Combines(const TableSpec& spec) const { return on_ && !separate_ && ClocksOf(spec) > 1; }
  // Adds a push of a table whose pushes are combined. Shares `gradients` until they are sent. plan.keys must not be
  // empty.
  void Add(const Plan& plan, const TableSpec& spec, const Buffer& gradients, const PushOrigin& origin,
           const ClientPushes::What& what);

  // The worker has requested a tick from `before` to `asked`, possibly over several clocks.
  void OnTick(Clock before, Clock asked);
  // Sets whether pushes are sent separately from now on (rule H7). If so, also sends the delayed ones.
  void SetSeparate(bool separate);
  // Sends all delayed pushes.
  void FlushAll();
  void OnTimer();
  TimeUs NextTimer() const { return due_; }
  bool idle() const { return groups_.empty(); }
  void FailAll(const Error& error);
  std::uint64_t Hash() const;

 private:
  struct Part {
    ClientPushes::Gathered push;
    std::vector<Key> keys;
    Buffer gradients;
  };
  struct Group {
    TableSpec spec;
    Clock seen;                               // the lowest PushOrigin::seen
    std::map<PartitionId, Version> versions;  // the lowest of each partition
    std::vector<Part> parts;
  };

  std::uint32_t ClocksOf(const TableSpec& spec) const;
  void Flush(const Group& group);

  ClientContext* context_;
  ClientPushes* pushes_;
  bool on_ = false;  // some table of the job has combined pushes
  bool separate_ = false;
  std::unique_ptr<Planner> planner_;
  std::map<TableId, Group> groups_;  // no group is empty
  std::size_t bytes_ = 0;            // bytes of all keys and gradients
  TimeUs due_ = kNever;
};

}  // namespace tarn::worker
