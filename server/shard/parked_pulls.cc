#include "server/shard/parked_pulls.h"

#include "core/held_bytes.h"

namespace tarn::server {

namespace {

std::size_t Cost(const ParkedPull& parked) {
  std::size_t bytes = sizeof(ParkedPull) + HeldBytesOfTables(parked.pull.tables);
  for (const PullPart& table : parked.pull.tables) bytes += table.keys.frame.size();
  return bytes;
}

}  // namespace

bool ParkedPulls::Park(ParkedPull parked) {
  const Id id(parked.incarnation, parked.pull.request);
  Drop(id.first, id.second);
  // A rejected pull is repeated until it is accepted: if none waits, any pull must be accepted, or it would never be
  // answered.
  if (!pulls_.empty() && (pulls_.size() >= pulls_max_ || bytes_ + Cost(parked) > bytes_max_)) return false;
  bytes_ += Cost(parked);
  if (!parked.clock_open) by_clock_.emplace(parked.wanted_clock, id);
  pulls_.emplace(id, std::move(parked));
  return true;
}

ParkedPull ParkedPulls::Take(Iterator it) {
  ParkedPull parked = std::move(it->second);
  bytes_ -= Cost(parked);
  if (!parked.clock_open) by_clock_.erase({parked.wanted_clock, it->first});
  pulls_.erase(it);
  return parked;
}

std::vector<ParkedPull> ParkedPulls::TakeWaitingForPush(Incarnation incarnation) {
  std::vector<ParkedPull> taken;
  for (auto it = pulls_.lower_bound({incarnation, RequestId(0)});
       it != pulls_.end() && it->first.first == incarnation;) {
    const auto next = std::next(it);
    if (it->second.clock_open) taken.push_back(Take(it));
    it = next;
  }
  return taken;
}

void ParkedPulls::Drop(Incarnation incarnation, RequestId request) {
  if (const auto it = pulls_.find({incarnation, request}); it != pulls_.end()) Take(it);
}

void ParkedPulls::Drop(Incarnation incarnation) {
  for (auto it = pulls_.lower_bound({incarnation, RequestId(0)});
       it != pulls_.end() && it->first.first == incarnation;) {
    const auto next = std::next(it);
    Take(it);
    it = next;
  }
}

}  // namespace tarn::server
