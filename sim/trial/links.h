// How long the messages of a trial take: each waits for its sender's link, has a latency and waits for its receiver's
// link. Messages between two nodes arrive in the order in which they were sent. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "core/job/job.h"
#include "core/message.h"
#include "sim/event_queue.h"

namespace tarn::sim {

class Links {
 public:
  // `events` in microseconds; it outlives the links. `nodes`: their number; they are counted from 0.
  Links(const Job& job, std::size_t nodes, EventQueue* events);

  // Calls `arrive` at the time at which a message of `bytes` arrives.
  void Send(std::size_t from, std::size_t to, std::size_t bytes, std::function<void()> arrive);

  std::uint64_t messages() const { return messages_; }
  std::uint64_t bytes() const { return bytes_; }

 private:
  // Returns the time at which a message that reaches a link at `at`, and occupies it for `us`, has passed it. Updates
  // *free_at, the time from which the link is free.
  double Pass(double* free_at, double at, double us) const { return *free_at = (at > *free_at ? at : *free_at) + us; }

  const Distribution latency_;
  const double us_per_byte_;
  EventQueue* const events_;
  SplitMix rng_;
  std::vector<double> out_free_at_, in_free_at_;  // by node: when its link is free again
  std::map<std::pair<std::size_t, std::size_t>, TimeUs> last_arrival_;
  std::uint64_t messages_ = 0, bytes_ = 0;
};

}  // namespace tarn::sim
