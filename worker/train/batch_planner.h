// Makes the plans of a batch for all tables of a model, on the calling thread or on the worker's GPU.
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
  // Planning a table on the GPU takes about a dozen launches and two waits, whatever the number of keys; in this time
  // the calling thread plans some thousand keys. From this many occurrences on, the GPU is clearly faster.
  static constexpr std::size_t kDeviceKeysMin = 65'536;

  std::uint32_t partition_bits = 0;
  std::optional<int> gpu;  // the worker's GPU; nullopt: the CPU
  std::size_t device_keys_min = kDeviceKeysMin;
};

// One thread at a time. Must outlive its plans.
class BatchPlanner {
 public:
  // Uses the seed of the job. `tables`: of the model, with ids.
  BatchPlanner(const Job& job, std::vector<TableUse> tables, const BatchPlannerOptions& options);
  BatchPlanner(BatchPlanner&&) noexcept;
  ~BatchPlanner();

  // Makes the plans for `keys`, the keys of a batch, by table of the model; leaves those of tables that need all rows
  // as they are. `plans` may be unused plans of an earlier batch, whose memory is reused. `keys` is unchanged on
  // return. Errors are those of the GPU (out of memory, failed, not usable); the message names the request.
  Status Make(std::vector<Key>* keys, std::vector<Plan>* plans);

 private:
  bool OnDevice(std::size_t occurrences) const { return options_.gpu && occurrences >= options_.device_keys_min; }
  void MakeOnHost(std::span<const Key> keys, std::vector<Plan>* plans);
  Status MakeOnDevice(std::vector<Key>* keys, std::vector<Plan>* plans);
  Status BringToDevice(std::span<const Key> keys);

  BatchPlannerOptions options_;
  std::vector<TableUse> tables_;
  std::vector<Positioner> positioners_;
  Planner host_;
  std::unique_ptr<DevicePlanner> device_;  // null until a batch was large enough
};

}  // namespace tarn::worker
