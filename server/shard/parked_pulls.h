// Pulls that cannot be answered yet (rule C3). Each waits first for a clock (ConsistencyPolicy::WantedClock), then for
// pushes of its own worker. Bounded. Not thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/message.h"

namespace tarn::server {

struct ParkedPull {
  Peer from;
  WorkerRank rank;
  Incarnation incarnation;
  Clock wanted_clock;       // the pull waits until the open clock of its tables reaches this clock
  bool clock_open = false;  // the clock is open: the pull waits only for pushes
  Pull pull;
};

class ParkedPulls {
 public:
  ParkedPulls(std::size_t pulls_max, std::size_t bytes_max) : pulls_max_(pulls_max), bytes_max_(bytes_max) {}

  // Changes the bound. Parked pulls are kept.
  void SetBound(std::size_t bytes_max) { bytes_max_ = bytes_max; }

  // First drops a parked pull of the same incarnation and request. Returns false if other pulls are parked and a bound
  // would be exceeded; accepts any pull if none is parked.
  bool Park(ParkedPull parked);

  // Removes and returns the pulls that waited for a clock up to `most` and for which is_open(parked) is true, in order
  // of (clock, incarnation, request). The caller compares the watermarks and parks those again, with clock_open, that
  // must wait for pushes.
  template <typename IsOpen>
  std::vector<ParkedPull> TakeOpened(Clock most, IsOpen is_open) {
    std::vector<ParkedPull> taken;
    for (auto it = by_clock_.begin(); it != by_clock_.end() && it->first <= most;) {
      const auto pull = pulls_.find((it++)->second);
      if (is_open(std::as_const(pull->second))) taken.push_back(Take(pull));
    }
    return taken;
  }

  // Removes and returns the pulls of `incarnation` that wait only for its pushes, in order of request.
  std::vector<ParkedPull> TakeWaitingForPush(Incarnation incarnation);

  void Drop(Incarnation incarnation, RequestId request);
  void Drop(Incarnation incarnation);

  std::size_t size() const { return pulls_.size(); }
  std::size_t bytes() const { return bytes_; }

 private:
  using Id = std::pair<Incarnation, RequestId>;
  using Iterator = std::map<Id, ParkedPull>::iterator;
  ParkedPull Take(Iterator it);

  std::size_t pulls_max_;
  std::size_t bytes_max_;
  std::size_t bytes_ = 0;
  std::map<Id, ParkedPull> pulls_;
  std::set<std::pair<Clock, Id>> by_clock_;  // pulls that wait for a clock
};

}  // namespace tarn::server
