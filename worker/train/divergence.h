// Finds the cause of a loss that is not finite, for the error of a diverged job.
#pragma once

#include <span>
#include <string>

#include "core/error.h"
#include "core/message.h"
#include "worker/client/plan.h"
#include "worker/models/model.h"

namespace tarn::worker {

// A step whose loss is not a finite number.
struct DivergedStep {
  const LeaseGrant* lease = nullptr;  // lease of its batch
  Clock clock;                        // the clock at which its rows are used
  std::span<const TableUse> uses;
  // By table, here and below: the plan, and its rows (unique rows x dim); empty if the host cannot read them.
  std::span<const Plan* const> plans;
  std::span<const std::span<const float>> rows;
};

// kDiverged with the clock, the epoch, the data set, and the first pulled value that is not finite, with its table and
// key. If all are finite, names the largest one, because a product or sum with it may have overflowed. Reads all rows.
Error DivergenceOf(const DivergedStep& step);

}  // namespace tarn::worker
