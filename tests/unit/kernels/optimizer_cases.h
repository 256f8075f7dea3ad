// The optimizers as the tests run them: every kind, plain and with all that may be added to it.
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
  constexpr OptimizerKind kKinds[] = {OptimizerKind::kSgd,     OptimizerKind::kMomentum,       OptimizerKind::kNesterov,
                                      OptimizerKind::kAdagrad, OptimizerKind::kRowWiseAdagrad, OptimizerKind::kRmsProp,
                                      OptimizerKind::kAdam,    OptimizerKind::kAdamW,          OptimizerKind::kFtrl};
  std::vector<OptimizerCase> cases;
  for (const OptimizerKind kind : kKinds) {
    OptimizerSpec plain;
    plain.kind = kind;
    plain.learning_rate = 0.02f;
    plain.initial_accumulator = 0.1f;
    plain.epsilon = 1e-6f;
    plain.weight_decay = 0.05f;
    plain.ftrl_l1 = 0.3f;
    plain.ftrl_l2 = 0.1f;
    const std::string name(Name(kind));
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
