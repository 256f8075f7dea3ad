// Random draws from the distributions of a job file ([delays]).
#pragma once

#include "core/hash.h"
#include "core/job/distribution.h"

namespace tarn::kernels {

inline constexpr double kDrawMax = 1e9;
// One draw, at most kDrawMax. The same bits on every machine.
double Draw(const Distribution& distribution, SplitMix* rng);

}  // namespace tarn::kernels
