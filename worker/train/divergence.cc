#include "worker/train/divergence.h"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <string_view>

#include "core/codec/manifest.h"

namespace tarn::worker {
namespace {

struct Value {
  std::size_t table = 0;
  Key key = 0;
  float value = 0;
  bool found = false;
};

// The first value that is not finite, else the largest.
Value WorstOf(const DivergedStep& step) {
  Value worst;
  for (std::size_t t = 0; t < step.rows.size(); ++t) {
    const Plan& plan = *step.plans[t];
    for (std::size_t i = 0; i < step.rows[t].size(); ++i) {
      const float value = step.rows[t][i];
      const bool finite = std::isfinite(value);
      if (finite && worst.found && std::abs(value) <= std::abs(worst.value)) continue;
      worst = {.table = t, .key = plan.keys[i / plan.dim], .value = value, .found = true};
      if (!finite) return worst;
    }
  }
  return worst;
}

std::string_view SetOf(LeasePurpose purpose) {
  switch (purpose) {
    case LeasePurpose::kTrain: return "training";
    case LeasePurpose::kValidate: return "validation";
    case LeasePurpose::kTest: return "test";
  }
  return "unknown";
}

}  // namespace

Error DivergenceOf(const DivergedStep& step) {
  std::string message = fmt::format(
      "training has diverged at clock {} (epoch {}): the log-loss of a batch of the {} set is not a finite "
      "number",
      step.clock.value, EpochNumber(step.lease->epoch), SetOf(step.lease->purpose));
  if (const Value worst = WorstOf(step); worst.found) {
    const std::string& table = step.uses[worst.table].spec.name;
    message +=
        std::isfinite(worst.value)
            ? fmt::format(
                  "; the rows that it pulled are finite, the largest in magnitude is {:g}, in table '{}', key "
                  "{}",
                  worst.value, table, worst.key)
            : fmt::format("; table '{}' holds the value {:g}, in the row of key {}", table, worst.value, worst.key);
  }
  message += ". A smaller learning_rate or train.clip_global_norm may help";
  return {ErrorCode::kDiverged, std::move(message)};
}

}  // namespace tarn::worker
