// What messages cost the threads that they pass, and what a simulated one stands for in the real fleet.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/scale_model/costs.h"
#include "bench/scale_model/fleet_options.h"
#include "bench/scale_model/workload.h"
#include "core/job/job.h"
#include "core/message.h"

namespace tarn::scale {

// Of a message in the real fleet: one to each server of a bundle that has a part of it.
struct Extent {
  double copies = 1;           // messages
  double rows = 0, dense = 0;  // of all of them, as costs count them
  double bytes = 0;
  double part = 1;  // of all this at the server of a bundle that has the most
  // For costs that go by bytes.
  Extent AsBytes() const { return {.copies = copies, .rows = bytes, .dense = 0, .bytes = bytes, .part = part}; }
};

// That of a worker which takes this answer; kCount: none.
Work WorkOfAnswer(const Body& body);

// All costs in nanoseconds. What it is made of outlives it.
class MessageCosts {
 public:
  MessageCosts(const Job& job, const FleetOptions& options, const Costs& costs, const Workload* workload);

  // shard: that the message comes from or goes to. asked: of the message that this one answers, or null.
  Extent ExtentOf(const Message& message, std::uint32_t shard, const Extent* asked) const;
  double Of(bool worker, Work work, const Extent& extent) const;
  // A message that comes to the node's main thread, and one that it sends.
  double In(bool worker, const Body& body, const Extent& extent) const;
  double Out(bool worker, const Body& body, const Extent& extent) const;

 private:
  void CountDenseParts(const Job& job);

  const FleetOptions& options_;
  const Costs& costs_;
  const Workload& workload_;
  std::vector<double> dense_parts_;  // by shard
};

}  // namespace tarn::scale
