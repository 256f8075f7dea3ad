// The measured part of the simulated time, and the work of the nodes in it. It begins at the end of the warm-up's last
// batch and ends with the last batch of the measured clocks. Before the fleet is ready, work takes no simulated time.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/scale_model/fleet_options.h"
#include "bench/scale_model/model_nodes.h"
#include "sim/event_queue.h"

namespace tarn::scale {

class MeasuredClocks {
 public:
  // All arguments outlive this object.
  MeasuredClocks(const FleetOptions* options, const ModelNodes* nodes, const sim::EventQueue* events)
      : options_(options), nodes_(nodes), events_(events) {}

  // Must be called when a worker has its tables.
  void OnReady() { ++ready_; }
  bool all_ready() const { return ready_ == options_->workers; }
  std::uint32_t ready() const { return ready_; }
  // Must be called when the fleet is ready: work takes time from now on.
  void Begin() { begun_ = true; }
  bool begun() const { return begun_; }
  // Must be called when a worker has trained a batch.
  void OnBatch();
  // Batches trained so far, per worker.
  double clocks() const { return double(batches_) / options_->workers; }
  // Whether the warm-up is over.
  bool counting() const { return began_ns_ > 0; }
  bool over() const { return over_; }

  // Must be called after the measurement. Sets the seconds per clock and adds the work of the nodes. Staleness, repeats
  // and rejections are those of the whole run.
  void AddTo(FleetResult* result) const;

 private:
  struct Busy {  // totals so far
    double compute = 0, main = 0, io = 0, out_wire = 0, in_wire = 0;
  };
  static Busy BusyOf(const ModelNode& node);
  void AddWorker(const ModelNode& node, double main, double io, double compute, FleetResult* result) const;
  double StalenessMean() const;
  void AddShard(const ModelNode& node, double main, double io, FleetResult* result) const;

  const FleetOptions* options_;
  const ModelNodes* nodes_;
  const sim::EventQueue* events_;
  bool begun_ = false, over_ = false;
  std::uint32_t ready_ = 0;
  std::uint64_t batches_ = 0;
  double began_ns_ = 0, ended_ns_ = 0;
  std::vector<Busy> at_begin_;
};

}  // namespace tarn::scale
