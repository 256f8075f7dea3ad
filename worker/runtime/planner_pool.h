// Plans for callers on any number of threads: one planner for each thread that plans at the moment. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "core/position.h"
#include "worker/client/plan.h"

namespace tarn::worker {

class PlannerPool {
 public:
  explicit PlannerPool(std::uint32_t partition_bits) : partition_bits_(partition_bits) {}

  // See Planner::Make. kTooLarge: more than kPlanKeysMax keys. kInvalidArgument: a dense table has no row for a key.
  Status Make(const TableSpec& spec, const Positioner& positioner, std::span<const Key> keys, Plan* plan,
              CallerOrder* order);

 private:
  std::unique_ptr<Planner> Borrow();

  std::uint32_t partition_bits_;
  std::mutex mutex_;                            // guards idle_
  std::vector<std::unique_ptr<Planner>> idle_;  // planners that no thread uses at present
};

}  // namespace tarn::worker
