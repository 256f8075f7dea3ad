// The costs of a batch on the worker: reading, planning, computing. Internal to calibrate.
#pragma once

#include <memory>

#include "bench/scale_model/costs.h"
#include "core/job/job.h"
#include "worker/data/dataset.h"

namespace tarn::scale {

// Keeps another core busy with the batches of a job, as other nodes on the machine would, as long as it lives. What is
// measured meanwhile depends little on what else runs on the machine.
class Company {
 public:
  static Expected<std::unique_ptr<Company>> Make(const Job& job, const worker::Dataset& set);
  ~Company();

 private:
  class Impl;
  explicit Company(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Sets kRead, kPlan and kCompute, as they are in company, and busy_slowdown: how much longer the compute takes so.
Status MeasureStages(const Job& job, const worker::Dataset& set, double seconds, Costs* costs);

}  // namespace tarn::scale
