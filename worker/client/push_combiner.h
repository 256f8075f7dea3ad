// Write-combining: the pushes of several clocks of a table wait here and travel as one, in which each row is the sum of
// theirs. Rules H6 to H8 of docs/protocol.md. Internal to worker/; one thread.
//
// Why every bound holds: what waits here is a push of its clock that is not acknowledged, so the worker's tick behind
// that clock waits too (C1). The minimum clock m of a shard is therefore still a clock below which every push of every
// live worker is applied, and a pull of clock c, answered once m + s >= c (C3), sees all of clocks < c - s. Nothing was
// changed but the time at which ticks go out: the bound stays s as seen by a reader, of which up to k - 1 clocks go to
// what waits in the others.
//
// Why nobody waits for ever: let t be the first clock of what waits, of a table with push_every = k. Its worker's tick
// stands at t or later, and it sends what waits when it ticks to t + k. Until then its pulls are of clocks
// c <= t + k - 1, which its own tick allows if t + s >= t + k - 1: that is k <= s + 1, asked of every table of the job
// when it is read. Of all workers the one with the least tick may thus always go on, and so the minimum does.
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

// What waits goes when its worker has neither pushed nor ticked for so long: nobody knows why it has stopped.
inline constexpr TimeUs kCombinePauseUs = 1'000'000;

class PushCombiner {
 public:
  PushCombiner(ClientContext* context, ClientPushes* pushes) : context_(context), pushes_(pushes) {}

  // After Welcome: the job and the number of partitions are known.
  void Begin();
  // Whether pushes of this table wait for those of later clocks.
  bool Combines(const TableSpec& spec) const { return on_ && !apart_ && ClocksOf(spec) > 1; }
  // A push of a table that combines. gradients: shared until it has gone. plan.keys is not empty.
  void Add(const Plan& plan, const TableSpec& spec, const Buffer& gradients, const ClientPushes::What& what);

  // The worker has asked to tick; behind more than one clock it has jumped.
  void OnTick(Clock before, Clock asked);
  // While `apart` pushes go one by one, and what waits goes at once.
  void SetApart(bool apart);
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
    Clock pulled_clock;  // the least
    std::vector<Part> parts;
  };

  std::uint32_t ClocksOf(const TableSpec& spec) const;
  void Flush(const Group& group);

  ClientContext* context_;
  ClientPushes* pushes_;
  bool on_ = false;  // some table of the job combines
  bool apart_ = false;
  std::unique_ptr<Planner> planner_;
  std::map<TableId, Group> groups_;  // none is empty
  std::size_t bytes_ = 0;            // of all keys and gradients
  TimeUs due_ = kNever;
};

}  // namespace tarn::worker
