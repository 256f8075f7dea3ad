// Why a step's loss is not a finite number: what the error of a diverged job names.
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
  const LeaseGrant* lease = nullptr;  // of its batch
  Clock clock;                        // at which its rows are used
  std::span<const TableUse> uses;
  // By table, as all below: the plan, and its rows (unique rows x dim); empty where the host cannot read them.
  std::span<const Plan* const> plans;
  std::span<const std::span<const float>> rows;
};

// kDiverged, with the clock, the epoch and the data set, the first pulled value that is not finite, with its table and
// key, or, if all are finite, the largest one: a product or a sum of it has overflowed. It reads all rows.
Error DivergenceOf(const DivergedStep& step);

}  // namespace tarn::worker
