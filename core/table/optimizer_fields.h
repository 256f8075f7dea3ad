// All fields of an OptimizerSpec with their keys in the job file and their ranges. Used by the reader and the writer of
// job files, by the comparison of two specs, and by Validate.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "core/table/table_spec.h"

namespace tarn {

// Calls visitor.Number(key, float&, Range) for each option of the spec's rule, and stores in the spec each value that
// the visitor changes. Spec is OptimizerSpec or const OptimizerSpec.
template <typename Visitor, typename Spec>
void VisitRuleOptions(Visitor& visitor, Spec& spec) {
  const UpdateRule* rule = FindUpdateRule(spec.kind);
  if (rule == nullptr) return;
  for (const RuleOption& option : rule->options) {
    float value = OptionOf(spec, option.name);
    const float before = value;
    visitor.Number(option.name, value, option.range);
    if constexpr (!std::is_const_v<Spec>)
      if (value != before) spec.options[std::string(option.name)] = value;
  }
}

// Calls visitor.Number(key, float&, Range), visitor.Name(key, RuleName& or enum&) and visitor.Integer(key, uint64&,
// low, high) for each field, in the order of the documentation. Spec is OptimizerSpec or const OptimizerSpec.
template <typename Visitor, typename Spec>
void VisitOptimizer(Visitor& visitor, Spec& spec) {
  constexpr std::uint64_t kClocksMax = std::uint64_t{1} << 40;
  visitor.Name("kind", spec.kind);
  visitor.Number("learning_rate", spec.learning_rate, kNotNegative);
  VisitRuleOptions(visitor, spec);
  visitor.Number("l2", spec.l2, kNotNegative);
  visitor.Number("clip_value", spec.clip_value, kNotNegative);
  visitor.Number("clip_norm", spec.clip_norm, kNotNegative);
  visitor.Name("schedule", spec.schedule.kind);
  visitor.Integer("warmup_clocks", spec.schedule.warmup_clocks, 0, kClocksMax);
  visitor.Integer("period_clocks", spec.schedule.period_clocks, 0, kClocksMax);
  visitor.Number("schedule_factor", spec.schedule.factor, Range{0, 1});
}

}  // namespace tarn
