#include "worker/runtime/planner_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/limits.h"

namespace tarn::worker {

std::unique_ptr<Planner> PlannerPool::Borrow() {
  const std::lock_guard lock(mutex_);
  if (idle_.empty()) return std::make_unique<Planner>(partition_bits_);
  auto planner = std::move(idle_.back());
  idle_.pop_back();
  return planner;
}

Status PlannerPool::Make(const TableSpec& spec, const Positioner& positioner, std::span<const Key> keys, Plan* plan,
                         CallerOrder* order) {
  if (keys.size() > limits::kPlanKeysMax)
    return Fail(ErrorCode::kTooLarge, fmt::format("table '{}': a request for {} keys, expected at most {}", spec.name,
                                                  keys.size(), limits::kPlanKeysMax));
  if (spec.kind == TableKind::kDense) {
    const auto worst = std::ranges::max_element(keys);
    if (worst != keys.end() && *worst >= spec.rows)
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("table '{}' has the rows 0..{}, but a key is {}", spec.name, spec.rows - 1, *worst));
  }
  auto planner = Borrow();
  planner->Make(spec.id, spec.dim, positioner, keys, plan, order);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(planner));
  return {};
}

}  // namespace tarn::worker
