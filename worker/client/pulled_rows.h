// Copies the rows of a pull from reply frames to their destination, decoded to fp32. Each row is copied once, when its
// reply arrives. Internal to worker/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/buffer.h"
#include "worker/client/completion.h"
#include "worker/client/plan.h"

namespace tarn::worker {

// Copies to the plan's order: `out` has a row of `dim` floats for each key of the plan.
void CopyToPlanOrder(const PulledRows& rows, std::uint32_t dim, float* out);

// Copies each row to the first occurrence of its key: `out` has a row for each key of the caller. After all rows have
// arrived, CopyRepeats fills in further occurrences.
void CopyToCallerOrder(const PulledRows& rows, std::uint32_t dim, const CallerOrder& order, float* out);
void CopyRepeats(std::uint32_t dim, const CallerOrder& order, float* out);

// All rows of a pull in the plan's order. If one reply has all of them, its buffer is used without a copy.
class PlanRows {
 public:
  PlanRows() = default;
  explicit PlanRows(const Plan& plan) : rows_(plan.keys.size()), dim_(plan.dim) {}
  void Take(const PulledRows& rows);
  // Valid after all rows have arrived. Empty for a plan without keys.
  const Buffer& values() const { return values_; }
  Buffer Release() { return std::move(values_); }

 private:
  std::size_t rows_ = 0;
  std::uint32_t dim_ = 0;
  Buffer values_;
};

}  // namespace tarn::worker
