// Pulls that may not be answered yet (rule C3): each waits first for a clock (ConsistencyPolicy::WantedClock), then for
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
  Incarnation incarnation;
  Clock wanted_clock;       // answered no earlier than its table's open clock is this
  bool clock_open = false;  // the open clock is there: it waits for pushes only
  Pull pull;
  Buffer keys;
};

class ParkedPulls {
 public:
  ParkedPulls(std::size_t pulls_max, std::size_t bytes_max) : pulls_max_(pulls_max), bytes_max_(bytes_max) {}

  // What is parked already stays.
  void SetBound(std::size_t bytes_max) { bytes_max_ = bytes_max; }

  // False if there is no room. The same incarnation and request replaces what is parked.
  bool Park(ParkedPull parked);

  // Takes out the pulls that waited for a clock up to `most` and for which is_open(parked) says so, in order of (clock,
  // incarnation, request). The caller looks at the watermarks, and parks again, with clock_open, what has to wait for
  // pushes.
  template <typename IsOpen>
  std::vector<ParkedPull> TakeOpened(Clock most, IsOpen is_open) {
    std::vector<ParkedPull> taken;
    for (auto it = by_clock_.begin(); it != by_clock_.end() && it->first <= most;) {
      const auto pull = pulls_.find((it++)->second);
      if (is_open(std::as_const(pull->second))) taken.push_back(Take(pull));
    }
    return taken;
  }

  // Takes out the pulls of `incarnation` that wait for its pushes only, in order of request.
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
  std::set<std::pair<Clock, Id>> by_clock_;  // those that wait for the clock
};

}  // namespace tarn::server
