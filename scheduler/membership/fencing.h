// The verdicts on workers that were declared dead, or that existed before a restart of the scheduler (rules M3, G4).
// Each shard stops serving a fenced worker and reports its newest tick. When all shards have reported, the clock at
// which the worker ended is known.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/message.h"

namespace tarn::scheduler {

class Fencing {
 public:
  // `ends_together`: workers from before a restart all end at one clock (rule G4).
  Fencing(std::size_t shards, bool ends_together) : shards_(shards), ends_together_(ends_together) {}

  void Begin(Incarnation worker, Clock join);
  // Begins the fencing of workers from before a restart: none of them ends before all shards have reported all of them.
  void BeginRestart() { restarting_ = true; }
  bool restarting() const { return restarting_; }

  // Handles a shard's heartbeat. Only the first report of each worker counts.
  void OnHeartbeat(ShardId shard, const Heartbeat& heartbeat);
  bool any() const { return !fenced_.empty(); }

  struct End {
    Incarnation worker;
    Clock clock;
    DataPosition position;
    Clock pushed;             // one past the highest clock with an applied push; 0: none
    bool taken_back = false;  // may have ended at an earlier clock than its last tick (rule G4)
  };
  // Removes and returns the workers that all shards have reported, by incarnation. `formed`: whether the fleet is
  // complete.
  std::vector<End> TakeEnds(bool formed);

 private:
  struct Report {
    FencedTick newest;
    std::vector<TickPoint> earlier;
  };
  struct Fenced {
    Clock join;
    std::map<ShardId, Report> reports;
  };

  static End EndOf(Incarnation worker, const Fenced& fenced);
  std::vector<End> EndTogether() const;

  std::size_t shards_;
  bool ends_together_;
  bool restarting_ = false;
  std::map<Incarnation, Fenced> fenced_;
};

}  // namespace tarn::scheduler
