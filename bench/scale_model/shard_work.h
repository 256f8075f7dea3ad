// Computes the cost of a shard's step beyond that of its message: the cost of closing clocks. With a meter, Step
// returns 0 and records the measured times of server::Shard instead.
#pragma once

#include <map>

#include "bench/scale_model/costs.h"
#include "bench/scale_model/fleet_options.h"
#include "bench/scale_model/message_costs.h"
#include "bench/scale_model/meter.h"
#include "bench/scale_model/workload.h"
#include "core/message.h"
#include "server/shard/shard.h"

namespace tarn::scale {

class ShardWork final : public server::ShardObserver {
 public:
  // All arguments outlive this object. meter: null: no measurement.
  ShardWork(const FleetOptions* options, const Costs* costs, const Workload* workload, Meter* meter)
      : options_(options), costs_(costs), workload_(workload), meter_(meter) {}

  // `handle` handles a message and appends answers to `out`. Returns the additional cost in nanoseconds. counts:
  // whether measurements are recorded.
  template <class Handle>
  double Step(Message message, const Extent& extent, bool counts, Outbox* out, Handle&& handle) {
    Begin(message.body, extent, counts, out);
    if (meter_ == nullptr) {
      handle(std::move(message));
      return extra_ns_;
    }
    meter_->Begin();
    const Body body = message.body;
    handle(std::move(message));
    Measure(body, extent);
    return extra_ns_;
  }

  void OnClockClosed(Clock clock) override;
  void OnPullServed(WorkerRank, Incarnation, const Pull&, Clock) override;

 private:
  struct Contributions {
    double count = 0, sparse_rows = 0, dense_rows = 0;
  };
  void Begin(const Body& body, const Extent& extent, bool counts, Outbox* out);
  void Measure(const Body& body, const Extent& extent);

  const FleetOptions* options_;
  const Costs* costs_;
  const Workload* workload_;
  Meter* meter_;
  std::map<Clock, Contributions> buckets_;  // of pushes whose clock is open
  // Of the step in progress.
  double extra_ns_ = 0;
  Outbox* out_ = nullptr;
  bool counts_ = false;
  bool observed_ = false;  // the step closed a clock or served a pull, which is measured separately
};

}  // namespace tarn::scale
