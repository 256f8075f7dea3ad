// The values that a section of a job inherits for keys that it does not set. Shared by the reader and the writer of job
// files.
#pragma once

#include <string>

#include "core/job/job.h"

namespace tarn {

// The default of `apply` in a mode.
constexpr ApplyMode DefaultApply(ConsistencyMode mode) {
  return mode == ConsistencyMode::kBsp ? ApplyMode::kAggregated : ApplyMode::kImmediate;
}

// Whether pushes of several clocks may be summed (rule H6).
constexpr bool MayCombine(const ConsistencySpec& spec) {
  return spec.mode != ConsistencyMode::kBsp && spec.apply == ApplyMode::kImmediate;
}

// The values inherited from `above` by a section with this mode: all if the mode is the same, else the mode's defaults.
constexpr ConsistencySpec InheritedConsistency(const ConsistencySpec& above, ConsistencyMode mode) {
  return mode == above.mode ? above : ConsistencySpec{mode, 0, DefaultApply(mode)};
}

// Inherits the cache settings; disables those that the mode does not support.
constexpr WorkerCacheSpec InheritedWorkerCache(WorkerCacheSpec above, const ConsistencySpec& spec) {
  if (spec.mode == ConsistencyMode::kAsp) above.bytes = 0;
  if (!MayCombine(spec)) above.push_every = 1;
  if (spec.mode != ConsistencyMode::kSsp) above.refresh_rows = false;
  return above;
}

// The values that a role with this rule inherits from [optimizer]: all common settings, and those options of its own
// rule that [optimizer] sets or that the rule of [optimizer] also has.
inline OptimizerSpec InheritedOptimizer(const OptimizerSpec& above, const RuleName& kind) {
  OptimizerSpec spec = above;
  spec.kind = kind;
  spec.options.clear();
  const UpdateRule *rule = FindUpdateRule(kind), *rule_above = FindUpdateRule(above.kind);
  if (rule == nullptr || rule_above == nullptr) return spec;
  for (const RuleOption& option : rule->options)
    if (above.options.contains(option.name) || rule_above->Has(option.name))
      spec.options[std::string(option.name)] = OptionOf(above, option.name);
  return spec;
}

}  // namespace tarn
