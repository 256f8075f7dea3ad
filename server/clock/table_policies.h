// The consistency policy of each table of a shard. Not thread-safe.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/table/table_spec.h"
#include "server/clock/consistency_policy.h"

namespace tarn::server {

class TablePolicies {
 public:
  // Creates policies from `entries`, which outlive this object.
  explicit TablePolicies(std::span<const PolicyEntry> entries = BuiltInPolicies()) : entries_(entries) {}

  // Adds a table or updates its settings. Creates another policy if the table's consistency changed. kUnsupported:
  // unknown policy.
  Status Put(const TableSpec& spec) {
    if (tables_.size() <= spec.id.value) tables_.resize(spec.id.value + 1);
    TablePolicy& table = tables_[spec.id.value];
    if (table.policy && table.spec == spec.consistency) return {};
    auto policy = MakePolicy(spec, entries_);
    if (!policy) return std::unexpected(policy.error());
    table = {spec.consistency, *std::move(policy)};
    return {};
  }

  // The policy of a table that was Put; valid until the next Put of this table.
  const ConsistencyPolicy& operator[](TableId table) const { return *tables_[table.value].policy; }

  // The largest open clock of any table: no pull that wants a later clock can be answered.
  Clock OpenClockMax(const Cohort& cohort) const {
    Clock most;
    for (const TablePolicy& table : tables_)
      if (table.policy) most = std::max(most, table.policy->OpenClock(cohort));
    return most;
  }

 private:
  struct TablePolicy {
    ConsistencySpec spec;
    std::unique_ptr<ConsistencyPolicy> policy;
  };
  std::span<const PolicyEntry> entries_;
  std::vector<TablePolicy> tables_;  // by id
};

}  // namespace tarn::server
