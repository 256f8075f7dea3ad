// The costs of a batch on the worker: reading, planning, computing. Internal to calibrate.
#pragma once

#include <memory>

#include "bench/scale_model/costs.h"
#include "core/job/job.h"
#include "worker/data/dataset.h"

namespace tarn::scale {

// While it exists, keeps another core busy with the batches of a job, like other nodes on the machine. Measurements
// then depend little on other load.
class BusyCore {
 public:
  static Expected<std::unique_ptr<BusyCore>> Make(const Job& job, const worker::Dataset& set);
  ~BusyCore();

 private:
  class Impl;
  explicit BusyCore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Sets kRead, kPlan and kCompute, measured while another core is busy, and busy_slowdown, the factor of the compute
// time in that case.
Status MeasureStages(const Job& job, const worker::Dataset& set, double seconds, Costs* costs);

}  // namespace tarn::scale
