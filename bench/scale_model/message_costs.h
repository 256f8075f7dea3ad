// The costs of a message for each thread that handles it, and the size of the real messages that a simulated one
// represents.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/scale_model/costs.h"
#include "bench/scale_model/fleet_options.h"
#include "bench/scale_model/workload.h"
#include "core/job/job.h"
#include "core/message.h"

namespace tarn::scale {

// The size of a message in the real fleet, which has one message per server of a bundle.
struct Extent {
  double copies = 1;              // messages
  double tables = 0;              // of all these messages
  double rows = 0, dense = 0;     // of all these messages, in the units of costs
  double bytes = 0, payload = 0;  // payload: only keys and values
  double part = 1;                // the largest share of one server of a bundle: of messages, bytes and sparse rows
  double dense_part = 1;          // of dense rows
};

// The frames of one transfer, as the sending or receiving node sees them.
struct Load {
  double frames = 0, bytes = 0;
};

// The work of a worker for this answer; kCount: none.
Work WorkOfAnswer(const Body& body);

// All costs are in nanoseconds. The arguments outlive this object.
class MessageCosts {
 public:
  MessageCosts(const Job& job, const FleetOptions& options, const Costs& costs, const Workload* workload);

  // `shard`: the sender or receiver. `asked`: extent of the request that the message answers, or null.
  Extent ExtentOf(const Message& message, std::uint32_t shard, const Extent* asked) const;
  // Cost of `work` for a message: at a worker, or at the server of a bundle with the largest part.
  double Of(bool worker, Work work, const Extent& extent) const;
  // Costs of the node's main thread, without those of frames: for a received message, and for a sent one.
  double In(bool worker, const Body& body, const Extent& extent) const;
  double Out(bool worker, const Body& body, const Extent& extent) const;
  // OfFrame: cost of the main thread for frames; `work` is kSend or kReceive. Io: cost of an I/O thread for frames and
  // their bytes; `work` is kIoSend or kIoReceive.
  double OfFrame(Work work, const Load& load) const;
  double Io(Work work, const Load& load) const;

 private:
  void CountDenseParts(const Job& job);
  // Cost of encoding (kSend) or decoding (kReceive) a message.
  double Coding(bool worker, Work work, const Extent& extent) const;

  const FleetOptions& options_;
  const Costs& costs_;
  const Workload& workload_;
  std::vector<double> dense_parts_;  // by shard
};

}  // namespace tarn::scale
