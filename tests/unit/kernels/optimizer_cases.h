// The optimizers that tests run: every kind, plain and with all options.
#pragma once

#include <string>
#include <vector>

#include "core/table/table_spec.h"

namespace tarn::kernels {

struct OptimizerCase {
  std::string name;
  OptimizerSpec spec;
};

inline std::vector<OptimizerCase> OptimizerCases() {
  const NamedOptions wanted = {
      {"initial_accumulator", 0.1f}, {"epsilon", 1e-6f}, {"weight_decay", 0.05f}, {"ftrl_l1", 0.3f}, {"ftrl_l2", 0.1f}};
  constexpr const char* kKinds[] = {"sgd",     "momentum", "nesterov", "adagrad", "row_wise_adagrad",
                                    "rmsprop", "adam",     "adamw",    "ftrl"};
  std::vector<OptimizerCase> cases;
  for (const char* kind : kKinds) {
    OptimizerSpec plain{.kind = kind, .learning_rate = 0.02f};
    for (const auto& [name, value] : wanted)
      if (FindUpdateRule(kind)->Has(name)) plain.options[name] = value;
    const std::string name = kind;
    cases.push_back({name, plain});
    OptimizerSpec by_value = plain;
    by_value.l2 = 0.01f;
    by_value.clip_value = 0.4f;
    by_value.schedule = {ScheduleKind::kCosine, 50, 800, 0.1f};
    cases.push_back({name + ", l2, clipped by value, cosine", by_value});
    OptimizerSpec by_norm = plain;
    by_norm.clip_norm = 0.7f;
    by_norm.schedule = {ScheduleKind::kStep, 20, 300, 0.5f};
    cases.push_back({name + ", clipped by norm, steps", by_norm});
  }
  return cases;
}

}  // namespace tarn::kernels
