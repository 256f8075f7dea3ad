// The costs of a batch on the worker: reading, planning, computing. Internal to calibrate.
#pragma once

#include "bench/scale_model/costs.h"
#include "core/job.h"

namespace tarn::scale {

// Sets kRead, kPlan, kCompute and busy_slowdown.
Status MeasureStages(const Job& job, double seconds, Costs* costs);

}  // namespace tarn::scale
