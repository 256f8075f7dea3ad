#include "server/clock/consistency_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

#include "server/clock/policies.h"

namespace tarn::server {

ConsistencyPolicy::Count ConsistencyPolicy::Choose(Clock clock, std::span<const Contribution>,
                                                   const Cohort& cohort) const {
  return {.counts = {}, .divisor = std::max(cohort.Size(clock), 1u)};
}

std::span<const PolicyEntry> BuiltInPolicies() {
  static constexpr PolicyEntry kEntries[] = {{"bsp", MakeBsp}, {"ssp", MakeSsp}, {"asp", MakeAsp}};
  return kEntries;
}

Expected<std::unique_ptr<ConsistencyPolicy>> MakePolicy(const TableSpec& spec, std::span<const PolicyEntry> entries) {
  const auto entry = std::ranges::find(entries, Name(spec.consistency.mode), &PolicyEntry::name);
  if (entry != entries.end()) return entry->make(spec);
  return Fail(ErrorCode::kUnsupported,
              fmt::format("consistency policy '{}': expected one of {}", Name(spec.consistency.mode),
                          fmt::join(entries | std::views::transform(&PolicyEntry::name), ", ")));
}

}  // namespace tarn::server
