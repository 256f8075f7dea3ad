// The transport of messages between shards and workers: I/O threads, and links with a bandwidth and a latency. On one
// host: the I/O threads and the measured local latency, no bandwidth limit. Counts messages on request.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bench/scale_model/costs.h"
#include "bench/scale_model/fleet_options.h"
#include "bench/scale_model/frames.h"
#include "bench/scale_model/message_costs.h"
#include "bench/scale_model/model_nodes.h"
#include "sim/event_queue.h"

namespace tarn::scale {

class Links {
 public:
  using Deliver = std::function<void(ModelNode*, std::vector<Arrived>)>;
  struct Counters {
    double frames = 0, messages = 0, ticks = 0, bytes = 0;  // of the real fleet
  };

  // All arguments outlive this object.
  Links(const FleetOptions* options, const Costs* costs, const MessageCosts* message_costs, const ModelNodes* nodes,
        sim::EventQueue* events, Deliver deliver)
      : options_(options),
        costs_(costs),
        message_costs_(message_costs),
        nodes_(nodes),
        events_(events),
        deliver_(std::move(deliver)) {}

  // Sends the messages of one flush; small ones to one node share frames. `measured`: whether they cost the sender's
  // thread time and are counted.
  void Send(ModelNode* from, std::vector<std::pair<Outgoing, Extent>> outgoing, bool measured);
  const Counters& counters() const { return counters_; }

 private:
  using SharedFrame = std::shared_ptr<Frame>;
  void Count(const Frame& frame);
  void Send(ModelNode* from, Frame frame);
  void PassHost(ModelNode* from, double out_ns, double in_ns, const SharedFrame& frame);
  void PassNetwork(ModelNode* from, double out_ns, double in_ns, const SharedFrame& frame);

  const FleetOptions* options_;
  const Costs* costs_;
  const MessageCosts* message_costs_;
  const ModelNodes* nodes_;
  sim::EventQueue* events_;
  Deliver deliver_;
  Counters counters_;
};

}  // namespace tarn::scale
