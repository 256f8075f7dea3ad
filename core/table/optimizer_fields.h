// Every field of an OptimizerSpec with its key in the job file and its range: the one list that the job file's
// reader, its writer and Validate share.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/table/table_spec.h"

namespace tarn {

// An interval; either end may be left out of it. Never holds NaN.
struct Range {
  double low = 0;
  double high = 0;
  bool without_low = false;
  bool without_high = false;

  constexpr bool Holds(double x) const {
    return (without_low ? x > low : x >= low) && (without_high ? x < high : x <= high);
  }
};

// "a number >= 0 and < 1".
std::string Describe(Range range);

// Calls visitor.Number(key, float&, Range), visitor.Name(key, enum&) and visitor.Integer(key, uint64&, low, high)
// for each field, in the order of the documentation. Spec is OptimizerSpec or const OptimizerSpec.
template <typename Visitor, typename Spec>
void VisitOptimizer(Visitor& visitor, Spec& spec) {
  constexpr Range kDecay{0, 1, false, true};
  constexpr Range kNotNegative{0, 1e6};
  constexpr Range kPositive{0, 1e6, true};
  constexpr std::uint64_t kClocksMax = std::uint64_t{1} << 40;
  visitor.Name("kind", spec.kind);
  visitor.Number("learning_rate", spec.learning_rate, kNotNegative);
  visitor.Number("momentum", spec.momentum, kDecay);
  visitor.Number("rho", spec.rho, kDecay);
  visitor.Number("beta1", spec.beta1, kDecay);
  visitor.Number("beta2", spec.beta2, kDecay);
  visitor.Number("epsilon", spec.epsilon, kPositive);
  visitor.Number("initial_accumulator", spec.initial_accumulator, kNotNegative);
  visitor.Number("weight_decay", spec.weight_decay, kNotNegative);
  visitor.Number("ftrl_beta", spec.ftrl_beta, kPositive);
  visitor.Number("ftrl_l1", spec.ftrl_l1, kNotNegative);
  visitor.Number("ftrl_l2", spec.ftrl_l2, kNotNegative);
  visitor.Number("l2", spec.l2, kNotNegative);
  visitor.Number("clip_value", spec.clip_value, kNotNegative);
  visitor.Number("clip_norm", spec.clip_norm, kNotNegative);
  visitor.Name("schedule", spec.schedule.kind);
  visitor.Integer("warmup_clocks", spec.schedule.warmup_clocks, 0, kClocksMax);
  visitor.Integer("period_clocks", spec.schedule.period_clocks, 0, kClocksMax);
  visitor.Number("schedule_factor", spec.schedule.factor, Range{0, 1});
}

}  // namespace tarn
