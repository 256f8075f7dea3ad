// A consistency policy: when pulls of a table may be answered, when a clock of it closes, and which pushes count. One
// object for each table of a shard; it decides, and the shard acts. docs/protocol.md has the rules (C3, A2).
//
// A new policy is one file in server/clock/ that overrides what differs from the defaults here, and one line in
// BuiltInPolicies (consistency_policy.cc).
//
// Policies are asked once a message or once a table and clock, never once a row. They are deterministic: an answer
// follows from the arguments and from what the policy was asked before, since a shard that recovers from its log asks
// the same again. Not thread-safe: the shard's thread owns them.
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

  // May a pull be answered that `worker` will use at clock `use`? It waits until the open clock is the wanted one. The
  // answer for a pull that waits already stays what it was when it came.
  virtual Clock WantedClock(Incarnation worker, Clock use, const Cohort& cohort) const = 0;
  // Never goes back. By default the minimum clock (rule C2).
  virtual Clock OpenClock(const Cohort& cohort) const { return cohort.minimum(); }
  bool MayAnswer(Incarnation worker, Clock use, const Cohort& cohort) const {
    return OpenClock(cohort) >= WantedClock(worker, use, cohort);
  }

  // May the shard discard a push of this clock, which it acknowledges all the same? By default one of an aggregated
  // table whose clock has closed, which only a worker that is fenced can send.
  virtual bool Discards(Incarnation /*worker*/, Clock clock, const Cohort& cohort) const {
    return consistency_.apply == ApplyMode::kAggregated && clock < cohort.minimum();
  }

  // Of aggregated tables: may this clock close? Asked when a worker has ticked and when a push of the clock was
  // gathered. `gathered` is what waits of the clock, of all tables. By default when every worker of the cohort has
  // finished it.
  virtual bool MayClose(Clock clock, std::span<const Contribution> /*gathered*/, const Cohort& cohort) const {
    return clock < cohort.minimum();
  }
  // Which contributions count when the clock closes, and by what their sum is divided. `gathered` is the table's, in
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

// How a policy is made, and the name under which the job file asks for it.
struct PolicyEntry {
  std::string_view name;
  std::unique_ptr<ConsistencyPolicy> (*make)(const TableSpec& spec) = nullptr;
};

std::span<const PolicyEntry> BuiltInPolicies();

// The policy that the table's spec names. kUnsupported, naming those that there are, if `entries` has none of that
// name.
Expected<std::unique_ptr<ConsistencyPolicy>> MakePolicy(const TableSpec& spec,
                                                        std::span<const PolicyEntry> entries = BuiltInPolicies());

}  // namespace tarn::server
