// A consistency policy decides when pulls of a table may be answered, when a clock of the table closes, and which
// pushes count. A shard has one object per table. docs/protocol.md has the rules (C3, A2).
//
// A new policy is one file in server/clock/ that overrides what differs from the defaults here, its declaration in
// policies.h, and one line in BuiltInPolicies (consistency_policy.cc).
//
// Methods are called a few times per message, or per table and clock, never per row. They must be deterministic
// functions of their arguments. A shard that recovers from its log repeats the calls for pushes, ticks and views, but
// not those for pulls. Not thread-safe: the shard's thread owns the policies.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/table/table_spec.h"
#include "core/types.h"
#include "server/clock/cohort.h"
#include "server/clock/contribution.h"

namespace tarn::server {

class ConsistencyPolicy {
 public:
  explicit ConsistencyPolicy(const TableSpec& spec) : table_(spec.id), consistency_(spec.consistency) {}
  virtual ~ConsistencyPolicy() = default;

  // The clock that must be open before the shard answers a pull of `worker` for use at clock `use`. A parked pull keeps
  // the result of its arrival.
  virtual Clock WantedClock(Incarnation worker, Clock use, const Cohort& cohort) const = 0;
  // The open clock of the table. Never decreases. Default: the minimum clock (rule C2).
  virtual Clock OpenClock(const Cohort& cohort) const { return cohort.minimum(); }
  bool MayAnswer(Incarnation worker, Clock use, const Cohort& cohort) const {
    return OpenClock(cohort) >= WantedClock(worker, use, cohort);
  }

  // Whether the shard acknowledges gradients of this clock without applying them. Default: those for a closed clock of
  // an aggregated table. Only a fenced worker or, with backup workers (rule C8), a late one can send them.
  virtual bool Discards(Incarnation /*worker*/, Clock clock, const Cohort& cohort) const {
    return consistency_.apply == ApplyMode::kAggregated && clock < OpenClock(cohort);
  }

  // Whether this clock of an aggregated table may close. Called after a tick, after a new view, and after a push of
  // the clock was gathered. `gathered`: waiting contributions of the clock, of all tables. Default: when a later clock
  // is open.
  virtual bool MayClose(Clock clock, std::span<const Contribution> /*gathered*/, const Cohort& cohort) const {
    return clock < OpenClock(cohort);
  }
  // Which contributions count when the clock closes, and the divisor of their sum. `gathered`: those of the table, in
  // order of partition and worker.
  struct Count {
    std::vector<bool> counts;   // by contribution; empty: all of them
    std::uint32_t divisor = 1;  // at least 1
  };
  virtual Count Choose(Clock clock, std::span<const Contribution> gathered, const Cohort& cohort) const;

 protected:
  TableId table() const { return table_; }
  const ConsistencySpec& consistency() const { return consistency_; }

 private:
  TableId table_;
  ConsistencySpec consistency_;
};

// The factory of a policy, and its name in the job file.
struct PolicyEntry {
  std::string_view name;
  std::unique_ptr<ConsistencyPolicy> (*make)(const TableSpec& spec) = nullptr;
};

std::span<const PolicyEntry> BuiltInPolicies();

// Creates the policy that the table's spec names. kUnsupported, with the known names, if `entries` does not have it.
Expected<std::unique_ptr<ConsistencyPolicy>> MakePolicy(const TableSpec& spec,
                                                        std::span<const PolicyEntry> entries = BuiltInPolicies());

}  // namespace tarn::server
