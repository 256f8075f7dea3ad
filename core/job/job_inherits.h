// What a section of a job has of the keys that it does not give: shared by the reader and the writer of job files.
#pragma once

#include <string>

#include "core/job/job.h"

namespace tarn {

// How pushes are applied where the job does not say it.
constexpr ApplyMode DefaultApply(ConsistencyMode mode) {
  return mode == ConsistencyMode::kBsp ? ApplyMode::kAggregated : ApplyMode::kImmediate;
}

// Whether pushes of several clocks may be summed (rule H6).
constexpr bool MayCombine(const ConsistencySpec& spec) {
  return spec.mode != ConsistencyMode::kBsp && spec.apply == ApplyMode::kImmediate;
}

// What follows for a section of this mode below one with `above`: all of it in the same mode, nothing in another.
constexpr ConsistencySpec InheritedConsistency(const ConsistencySpec& above, ConsistencyMode mode) {
  return mode == above.mode ? above : ConsistencySpec{mode, 0, DefaultApply(mode)};
}

// What a mode does not know is off.
constexpr WorkerCacheSpec InheritedWorkerCache(WorkerCacheSpec above, const ConsistencySpec& spec) {
  if (spec.mode == ConsistencyMode::kAsp) above.bytes = 0;
  if (!MayCombine(spec)) above.push_every = 1;
  return above;
}

// What a role of this kind has of [optimizer]: all that is not an option, and the options of its own rule that
// [optimizer] gives, for whichever rule, or that the rule of [optimizer] has.
inline OptimizerSpec InheritedOptimizer(const OptimizerSpec& above, const RuleName& kind) {
  OptimizerSpec spec = above;
  spec.kind = kind;
  spec.options.clear();
  const UpdateRule *rule = FindUpdateRule(kind), *its = FindUpdateRule(above.kind);
  if (rule == nullptr || its == nullptr) return spec;
  for (const RuleOption& option : rule->options)
    if (above.options.contains(option.name) || its->Has(option.name))
      spec.options[std::string(option.name)] = OptionOf(above, option.name);
  return spec;
}

}  // namespace tarn
