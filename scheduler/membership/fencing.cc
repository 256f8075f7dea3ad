#include "scheduler/membership/fencing.h"

#include <algorithm>
#include <ranges>
#include <utility>

namespace tarn::scheduler {

void Fencing::Begin(Incarnation worker, Clock join) { fenced_[worker] = {join, {}}; }

void Fencing::OnHeartbeat(ShardId shard, const Heartbeat& heartbeat) {
  for (const FencedTick& tick : heartbeat.fenced) {
    const auto fenced = fenced_.find(tick.incarnation);
    if (fenced == fenced_.end()) continue;
    const auto [it, added] = fenced->second.reports.try_emplace(shard);
    if (!added) continue;
    it->second.newest = tick;
    for (const WorkerTick& earlier : heartbeat.fenced_ticks)
      if (earlier.incarnation == tick.incarnation) it->second.earlier.push_back({earlier.clock, earlier.position});
  }
}

std::vector<Fencing::End> Fencing::TakeEnds(bool formed) {
  std::vector<Incarnation> ready;
  for (const auto& [worker, fenced] : fenced_)
    if (fenced.reports.size() == shards_) ready.push_back(worker);
  if (restarting_) {
    if (!formed || ready.size() != fenced_.size()) return {};
    restarting_ = false;
    if (ends_together_) {
      std::vector<End> ends = EndTogether();
      fenced_.clear();
      return ends;
    }
  }
  std::vector<End> ends;
  for (const Incarnation worker : ready) {
    ends.push_back(EndOf(worker, fenced_.at(worker)));
    fenced_.erase(worker);
  }
  return ends;
}

Fencing::End Fencing::EndOf(Incarnation worker, const Fenced& fenced) {
  FencedTick highest;
  Clock pushed;
  for (const auto& [shard, report] : fenced.reports) {
    const FencedTick& tick = report.newest;
    if (tick.tick > highest.tick) highest = tick;
    pushed = std::max(pushed, tick.pushed);
  }
  return {worker, std::max(highest.tick, fenced.join), highest.position, pushed};
}

// All workers end at the lowest of their clocks, with their positions at that clock (rule G4). These are known: a shard
// that has the newest tick of a worker has all its ticks down to the shard's minimum clock, which is not above the
// clock at which all end.
std::vector<Fencing::End> Fencing::EndTogether() const {
  Clock together(UINT64_MAX);
  for (const auto& [worker, fenced] : fenced_) {
    Clock newest = fenced.join;
    for (const auto& [shard, report] : fenced.reports) newest = std::max(newest, report.newest.tick);
    together = std::min(together, newest);
  }
  std::vector<End> ends;
  for (const auto& [worker, fenced] : fenced_) {
    TickPoint at{fenced.join, {}};
    for (const auto& [shard, report] : fenced.reports) {
      std::vector<TickPoint> ticks = report.earlier;
      ticks.push_back({report.newest.tick, report.newest.position});
      for (const TickPoint& tick : ticks)
        if (tick.clock <= together && tick.clock >= at.clock) at = tick;
    }
    ends.push_back({worker, std::max(together, fenced.join), at.position, Clock(0), true});
  }
  return ends;
}

}  // namespace tarn::scheduler
