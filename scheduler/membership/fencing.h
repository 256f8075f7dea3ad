// The verdicts about workers that were declared dead or that the scheduler's restart found (rules M3, G4). Each shard
// stops serving a fenced worker and reports the newest tick that it has of it; once all shards have, the clock at which
// the worker ended is known.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "core/message.h"

namespace tarn::scheduler {

class Fencing {
 public:
  // ends_together (rule G4): workers from before a restart all end at one clock.
  Fencing(std::size_t shards, bool ends_together) : shards_(shards), ends_together_(ends_together) {}

  void Begin(Incarnation worker, Clock join);
  // Workers from before a restart follow: none of them ends before all shards have reported all of them.
  void BeginRestart() { restarting_ = true; }
  bool restarting() const { return restarting_; }

  // A shard's heartbeat. Of each worker its first report counts.
  void OnHeartbeat(ShardId shard, const Heartbeat& heartbeat);
  bool any() const { return !fenced_.empty(); }

  struct End {
    Incarnation worker;
    Clock clock;
    DataPosition position;
    Clock pushed;             // one past the highest clock of which a push was applied; 0: none
    bool taken_back = false;  // to an earlier clock than the worker had ticked to (rule G4)
  };
  // The workers on which all shards have reported, by incarnation; they are forgotten here. `formed`: whether the fleet
  // is complete.
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
