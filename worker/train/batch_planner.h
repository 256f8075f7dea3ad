// The plans of a batch, for all tables of a model: made here, or on the GPU that the worker computes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/job/job.h"
#include "worker/client/plan.h"
#include "worker/models/model.h"
#include "worker/train/device_planner.h"

namespace tarn::worker {

struct BatchPlannerOptions {
  // A plan on the GPU is about a dozen launches and two waits, however small the batch: as long as this thread takes
  // for some thousand keys. A batch of this many occurrences is far beyond and keeps the GPU busy.
  static constexpr std::size_t kDeviceKeysMin = 65'536;

  std::uint32_t partition_bits = 0;
  std::optional<int> gpu;  // that the worker computes on; none: the CPU
  std::size_t device_keys_min = kDeviceKeysMin;
};

// One thread at a time. It outlives the plans.
class BatchPlanner {
 public:
  // Of the job it takes the seed. `tables` are the model's, with ids.
  BatchPlanner(const Job& job, std::vector<TableUse> tables, const BatchPlannerOptions& options);
  BatchPlanner(BatchPlanner&&) noexcept;
  ~BatchPlanner();

  // Plans of `keys`, those of a batch, by table of the model; of tables that need all rows empty ones. `plans` may be
  // those of an earlier batch that nobody uses any more: they keep their memory. `keys` is as it was afterwards. Errors
  // are the GPU's: there is not enough memory, it failed, or it cannot be used; the message says what was asked for.
  Status Make(std::vector<Key>* keys, std::vector<Plan>* plans);

 private:
  bool OnDevice(std::size_t occurrences) const { return options_.gpu && occurrences >= options_.device_keys_min; }
  Status BringToDevice(std::span<const Key> keys);

  BatchPlannerOptions options_;
  std::vector<TableUse> tables_;
  std::vector<Positioner> positioners_;
  Planner host_;
  std::unique_ptr<DevicePlanner> device_;  // null until a batch is large enough
};

}  // namespace tarn::worker
